"""The ServerApp: FedAvg with all its defaults, except that no client evaluates."""

from deployed_task import new_model
from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from round_marks import mark_round

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    told = ConfigRecord({name: config[name] for name in ("local-steps", "batch-size", "learning-rate")})
    arrays = ArrayRecord(new_model(config["model"]).state_dict())

    def mark(number: int, _arrays: ArrayRecord) -> None:
        mark_round(config["marks"], number)

    FedAvg(fraction_evaluate=0.0).start(grid, arrays, num_rounds=config["rounds"], train_config=told, evaluate_fn=mark)
