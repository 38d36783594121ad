"""Compare what a page shows with what was printed: word by word, and number by number within a tolerance.

Widths of columns and empty lines do not count. ``...`` stands for any words of a line, as a line for any lines.
"""

import math
import re

ROUNDING = 1e-9  # a proved gap below it differs from processor to processor
BOUND = 2e-9  # relative: so does a proved bound, by as much as its gap, and it is shown with ten digits
NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.]*\w)")


def difference(shown: str, printed: str, tolerance: float = 0.0) -> str | None:
    """Return the first line that differs, in words, or None where all are the same."""
    wanted, found = _lines(shown), _lines(printed)
    if _same_lines(wanted, found, tolerance):
        return None
    for number, line in enumerate(wanted):
        if not _same_lines([*wanted[: number + 1], "..."], found, tolerance):
            return f"the page shows {line!r}; printed was:\n{printed}"
    return f"more was printed than the page shows:\n{printed}"


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _same_lines(wanted: list[str], found: list[str], tolerance: float) -> bool:
    if not wanted:
        return not found
    if wanted[0] == "...":
        return any(_same_lines(wanted[1:], found[start:], tolerance) for start in range(len(found) + 1))
    return bool(found) and _same_line(wanted[0], found[0], tolerance) and _same_lines(wanted[1:], found[1:], tolerance)


def _same_line(wanted: str, found: str, tolerance: float) -> bool:
    words = [re.escape(word) for word in NUMBER.sub("\0", wanted).split()]
    pattern = r"\s+".join(words).replace(r"\.\.\.", ".*").replace(re.escape("\0"), f"({NUMBER.pattern})")
    match = re.fullmatch(pattern, found)
    if match is None:
        return False
    return all(_same_number(*pair, tolerance) for pair in zip(NUMBER.findall(wanted), match.groups(), strict=True))


def _same_number(wanted: str, found: str, tolerance: float) -> bool:
    values = [float(text.replace(",", "")) for text in (wanted, found)]
    relative = max(tolerance, BOUND) if "." in wanted else tolerance
    return wanted == found or math.isclose(*values, rel_tol=relative, abs_tol=ROUNDING)
