"""``fewjoules.Run``: what a training gives back."""

import copy
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from fewjoules.errors import InvalidInputError, shown
from fewjoules.files import require_regular
from fewjoules.ledger.frames import pandas_frame, polars_frame
from fewjoules.ledger.parquet import read_table
from fewjoules.ledger.schema import LEDGER, METRICS, TABLES, RowArray, TableSchema
from fewjoules.provenance import KINDS
from fewjoules.runs.files import COMPARISON, LEDGER_TABLE, METRICS_TABLE, MODEL, PILOTS, RUN, SETTINGS
from fewjoules.runs.metered import Metered
from fewjoules.runs.results import RunResults
from fewjoules.runs.sealed import read_sealed

if TYPE_CHECKING:
    import pandas
    import polars


@dataclass(frozen=True, slots=True)
class Run:
    """A finished training: its model, a metrics row for each round, a ledger row for each round and participant.

    Args:
        trained: The trained model; None if a folder was read without one.
        metrics: Structured array with the columns of docs/ledger.md, one row for each round; unknown numbers are NaN.
        ledger: Structured array with the columns of docs/ledger.md, one row for each round and participant.
        stop_reason: Why the training ended, such as "target accuracy", "rounds" or "interrupted".
        execution: How the clients were trained, in words.
        metered: What the meters of this machine read, if they were asked; no part of the ledger.
        returns: Rounds after which the guard returned to an earlier model.
        folder: Where the results are, if they were written.
    """

    trained: nn.Module | None
    metrics: RowArray
    ledger: RowArray
    stop_reason: str
    execution: str
    metered: Metered | None = None
    returns: tuple[int, ...] = ()
    folder: Path | None = None

    @classmethod
    def load(cls, folder: str | Path, model: nn.Module | None = None) -> "Run":
        """Read the folder of a finished run, of ``fewjoules.train`` or of the command.

        The folder holds weights but no code, so ``Run.model`` is known only if a model of the same kind is given; its
        own weights do not matter, and it is not changed.
        """
        if not isinstance(folder, str | Path):
            raise InvalidInputError(f"folder must be the path of a folder, got {shown(folder)}")
        if model is not None and not isinstance(model, nn.Module):
            raise InvalidInputError(f"model must be a torch.nn.Module or None, got {shown(model)}")
        place = Path(folder)
        if not (place / RUN).exists():
            raise InvalidInputError(f"{place}: {_why_no_run(place)}")
        summary = RunResults.load(place).summary
        return cls(
            trained=None if model is None else _with_weights(model, place / MODEL),
            metrics=read_table(place / METRICS_TABLE, METRICS),
            ledger=read_table(place / LEDGER_TABLE, LEDGER),
            stop_reason=summary.stop_reason,
            execution=summary.facts.get("execution", "unknown"),
            metered=summary.metered,
            returns=summary.returns,
            folder=place,
        )

    @property
    def model(self) -> nn.Module:
        """The trained model, on the processor, in evaluation mode."""
        if self.trained is None:
            raise InvalidInputError(
                f"{self.folder}: a folder holds weights but no code; read it with fewjoules.Run.load(folder, model)"
            )
        return self.trained

    @property
    def energy_joules(self) -> float:
        """Joules of all devices and rounds; NaN without a fleet."""
        return math.fsum(math.fsum(self.ledger[f"{kind}_joules"]) for kind in KINDS)

    def to_pandas(self, table: str = "metrics") -> "pandas.DataFrame":
        """Return "metrics" or "ledger" as a pandas data frame; marks are words, unknown numbers NaN."""
        return pandas_frame(*self._rows(table))

    def to_polars(self, table: str = "metrics") -> "polars.DataFrame":
        """Return "metrics" or "ledger" as a polars data frame; marks are words, unknown numbers null."""
        return polars_frame(*self._rows(table))

    def _rows(self, name: str) -> tuple[RowArray, TableSchema]:
        for table in TABLES:
            if table.name == name:
                rows = getattr(self, name)
                return rows, table.with_metrics(table.own_metrics(rows.dtype.names or ()))
        raise InvalidInputError(f"the table must be 'metrics' or 'ledger', got {shown(name)}")


def _why_no_run(folder: Path) -> str:
    """Say what a folder without the outcome of a run is."""
    settings = read_sealed(folder / SETTINGS) if (folder / SETTINGS).exists() else None
    command = settings.get("command") if isinstance(settings, dict) else None
    if command == "compare" or (folder / COMPARISON).exists():
        runs = sorted(file.parent for pattern in (f"*/{RUN}", f"*/*/{RUN}") for file in folder.glob(pattern))
        found = f"such as {runs[0]}" if runs else "none finished yet"
        return f"is a comparison, whose runs are in its folders, {found}"
    if command == "tune" or (folder / PILOTS).exists():
        return "is a tuning, which has no run; train the recipe that it found"
    return "the run is not finished; resume it first" if settings is not None else f"must be a run's folder with {RUN}"


def _with_weights(model: nn.Module, file: Path) -> nn.Module:
    """Return a copy of the model with the weights in a safetensors file; refuse those of another model."""
    require_regular(file)
    result = copy.deepcopy(model).cpu()
    try:
        result.load_state_dict(load_file(file))
    except (SafetensorError, OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise InvalidInputError(f"{file}: does not fit the model ({shown(reason, 200)})") from error
    result.eval()
    return result
