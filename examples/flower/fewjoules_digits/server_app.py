"""The ServerApp: asks the nodes for their costs, plans, trains and keeps the ledger."""

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from fewjoules.flower import FewJoulesStrategy, RoundRules

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train the scenario on the nodes of the grid."""
    import torch

    from fewjoules_digits.task import task

    config, own = context.run_config, task()
    strategy = FewJoulesStrategy(
        scenario=own.scenario,
        folder=config["folder"] or None,
        rules=RoundRules(deadline_seconds=config["deadline-seconds"], min_replies=config["min-replies"]),
    )

    @torch.no_grad()
    def evaluate(_round: int, arrays: ArrayRecord) -> MetricRecord:
        own.model.load_state_dict(arrays.to_torch_state_dict(), strict=False)
        inputs, targets = own.test.take(torch.arange(len(own.test)))
        outputs = own.model.eval()(inputs)
        right = (outputs.argmax(1) == targets).float().mean()
        return MetricRecord({"loss": float(own.loss(outputs, targets).mean()), "accuracy": float(right)})

    strategy.start(grid, own.model, num_rounds=config["rounds"] or None, evaluate_fn=evaluate)
