"""The ServerApp: FewJoules with given options; every round is saved, as in a real run."""

from deployed_task import new_model
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from round_marks import mark_round

from fewjoules.engine.algorithm.options import TrainingOptions
from fewjoules.flower import FewJoulesStrategy, RoundRules

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    options = TrainingOptions.of(
        local_steps=config["local-steps"],
        sparsity=[config["sparsity"]] * config["clients"],
        rounds=config["rounds"],
        learning_rate=config["learning-rate"],
        batch_size=config["batch-size"],
        evaluate_every=1,
    )

    def mark(number: int, _arrays: ArrayRecord) -> MetricRecord:
        mark_round(config["marks"], number)
        return MetricRecord({"loss": 0.0})  # nothing is evaluated, as in plain FedAvg

    rules = RoundRules(deadline_seconds=300.0, min_replies=config["clients"])
    mark_round(config["marks"], 0)
    strategy = FewJoulesStrategy(options, folder=config["folder"], rules=rules, wait_seconds=120.0)
    strategy.start(grid, new_model(config["model"]), evaluate_fn=mark)
