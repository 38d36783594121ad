"""[device.gpu] and [[device.point]] of a scenario file: the operating points of a processor, modelled or stated."""

from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Discriminator, Tag

from fewjoules.errors import InvalidInputError
from fewjoules.physics.gpu import GpuModel
from fewjoules.scenario.schema.base import NonNegative, Positive, Table

CLOCKS = 8  # operating points that a range of clocks becomes


class VoltsTable(Table):
    """gpu.core_volts as a line: base + per_hertz times the clock."""

    base: NonNegative
    per_hertz: NonNegative


class ClockTable(Table):
    """gpu.core_hertz as a range to choose from."""

    min: Positive
    max: Positive


class StepCosts(NamedTuple):
    """Costs of a local step at one operating point."""

    joules_per_step: float
    seconds_per_step: float
    joules_per_sample: float = 0.0
    seconds_per_sample: float = 0.0


class GpuTable(Table):
    """[device.gpu]."""

    static_watts: NonNegative
    memory_watts_per_hertz: NonNegative
    core_watts_per_volt2_hertz: NonNegative
    static_seconds: NonNegative
    memory_cycles: NonNegative
    core_cycles: NonNegative
    core_volts: Annotated[
        Annotated[Positive, Tag("number")] | Annotated[VoltsTable, Tag("line")],
        Discriminator(lambda given: "line" if isinstance(given, dict | VoltsTable) else "number"),
    ]
    core_hertz: Annotated[
        Annotated[Positive, Tag("number")] | Annotated[ClockTable, Tag("range")],
        Discriminator(lambda given: "range" if isinstance(given, dict | ClockTable) else "number"),
    ]
    memory_hertz: Positive

    def points(self) -> list[StepCosts]:
        """Return joules and seconds of one local step: at the given clock, or at the best one and at faster ones."""
        model = GpuModel(**self.model_dump(exclude={"core_volts", "core_hertz", "memory_hertz"}))
        return [
            StepCosts(
                model.step_joules(core_volts=self._volts(clock), core_hertz=clock, memory_hertz=self.memory_hertz),
                model.step_seconds(core_hertz=clock, memory_hertz=self.memory_hertz),
            )
            for clock in self._clocks(model)
        ]

    def _clocks(self, model: GpuModel) -> list[float]:
        if not isinstance(self.core_hertz, ClockTable):
            return [self.core_hertz]
        low, high = self.core_hertz.min, self.core_hertz.max
        if low > high:
            raise InvalidInputError(f"gpu.core_hertz.min must be at most max = {high:g}, got {low:g}")
        base, slope = (
            (self.core_volts.base, self.core_volts.per_hertz)
            if isinstance(self.core_volts, VoltsTable)
            else (self.core_volts, 0.0)
        )
        best = model.best_core_hertz(
            volts_at_zero=base, volts_per_hertz=slope, memory_hertz=self.memory_hertz, low=low, high=high
        )
        return np.unique(np.geomspace(best, high, CLOCKS)).tolist()  # a slower clock than the best is never better

    def _volts(self, core_hertz: float) -> float:
        volts = self.core_volts
        return volts.base + volts.per_hertz * core_hertz if isinstance(volts, VoltsTable) else volts


class PointTable(Table):
    """[[device.point]]: one setting of the processor; clock and voltage only name it."""

    core_hertz: Positive | None = None
    core_volts: Positive | None = None
    joules_per_step: NonNegative
    seconds_per_step: NonNegative
    joules_per_sample: NonNegative = 0.0
    seconds_per_sample: NonNegative = 0.0

    def costs(self) -> StepCosts:
        """Joules and seconds of a local step."""
        return StepCosts(self.joules_per_step, self.seconds_per_step, self.joules_per_sample, self.seconds_per_sample)
