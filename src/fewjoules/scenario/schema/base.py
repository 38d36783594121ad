"""Base class of all tables of a scenario file."""

from typing import Annotated, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

Positive = Annotated[float, Field(gt=0.0)]
NonNegative = Annotated[float, Field(ge=0.0)]


def _printable(name: str) -> str:
    if not name.isprintable():
        raise ValueError("must hold printable characters only")
    return name


Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_printable)]


class Table(BaseModel):
    """A table of the file. It refuses unknown keys, NaN, and text or booleans in place of numbers."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
