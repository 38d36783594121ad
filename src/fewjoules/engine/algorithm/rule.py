"""The rule of a local step, as plain data that an order can carry to a client."""

from dataclasses import dataclass

from fewjoules.engine.algorithm.options import TrainingOptions


@dataclass(frozen=True, slots=True)
class InnerRule:
    """The options that decide a local step, and whether moments are kept between rounds (``state``)."""

    kind: str
    momentum: float
    beta2: float
    epsilon: float
    weight_decay: float
    clip: float | None
    state: str

    @classmethod
    def of(cls, options: TrainingOptions) -> "InnerRule":
        """Rule that the options of a run ask for."""
        assert options.inner is not None
        assert options.momentum is not None
        assert options.momentum_state is not None
        return cls(
            kind=options.inner,
            momentum=options.momentum,
            beta2=options.adam_beta2,
            epsilon=options.adam_epsilon,
            weight_decay=options.weight_decay,
            clip=options.gradient_clip,
            state=options.momentum_state,
        )

    @property
    def moments(self) -> tuple[str, ...]:
        """Names of the moments that the rule keeps from step to step."""
        return {"sgd": (), "momentum": ("velocity",), "adamw": ("velocity", "squares")}[self.kind]

    @property
    def kept_moments(self) -> tuple[str, ...]:
        """Names of the moments that a client keeps from round to round."""
        return () if self.state == "reset" else self.moments
