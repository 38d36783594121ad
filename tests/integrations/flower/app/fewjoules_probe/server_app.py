"""The ServerApp: trains one of the tasks and leaves the weights in the folder of the run."""

from pathlib import Path

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fewjoules.flower import FewJoulesStrategy, RoundRules

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    from fewjoules_probe.task import SCENARIO, model_of, options_of

    config = context.run_config
    what = {"scenario": SCENARIO} if config["planned"] else {"options": options_of(config)}
    rules = RoundRules(
        deadline_seconds=config["deadline-seconds"], min_replies=config["min-replies"], attempts=config["attempts"]
    )
    strategy = FewJoulesStrategy(**what, clients=config["clients"], folder=config["folder"], rules=rules)
    strategy.start(grid, model_of(config["task"]), num_rounds=config["rounds"])
    state = strategy.loop.simulator.state
    np.savez(
        Path(config["folder"]) / "final.npz",
        weights=state.weights.numpy(),
        buffers=state.buffers.numpy(),
        accepted=state.accepted,
        last_change=state.broadcast.numpy(),
    )
