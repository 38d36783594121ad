"""Numbers as text."""

from fewjoules.arrays import FloatArray, IntArray


def number(value: float) -> str:
    """Format a number with four significant digits and thousands separated, or as a power of ten."""
    if value == 0.0 or 1e-3 <= abs(value) < 1e4:
        return f"{value:.4g}"
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e7 else f"{value:.3e}"


def brief(value: float) -> str:
    """Format a number with three significant digits where ``number`` has four."""
    return f"{value:.3g}" if 1e-3 <= abs(value) < 1e3 else number(value)


def rounds_said(count: int | None) -> str:
    """Say how many rounds, "1 round" or "1,234 rounds"."""
    return "1 round" if count == 1 else f"{count:,} rounds"


def span(values: FloatArray | IntArray, form: str = "{:.4g}") -> str:
    """Format the range of some numbers, or the one number that they share."""
    low, high = form.format(values.min()), form.format(values.max())
    return low if low == high else f"{low} to {high}"
