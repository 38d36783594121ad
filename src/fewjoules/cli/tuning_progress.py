"""Show the progress of a tuning: one line that changes on a terminal, elsewhere a line for each pilot."""

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import typer

from fewjoules.cli.compiling import compiling_told
from fewjoules.cli.progress import say_compiling

if TYPE_CHECKING:
    from fewjoules.runs.tuning_news import Progress


@contextlib.contextmanager
def tuning_progress() -> Iterator[Callable[["Progress"], None]]:
    """Yield a function that shows what is known after each pilot."""
    from fewjoules.cli.live import live_console, live_text

    terminal = live_console()
    if terminal is None:
        with compiling_told(lambda _: say_compiling(), lambda: None):
            yield lambda progress: typer.echo("; ".join(progress_lines(progress)), err=True)
        return
    with live_text(terminal) as show:
        lines = ["training the first pilots"]

        def tell(progress: "Progress") -> None:
            lines[:] = progress_lines(progress)
            show("\n".join(lines))

        show(*lines)
        with compiling_told(lambda said: show("\n".join([*lines, said])), lambda: show("\n".join(lines))):
            yield tell


def progress_lines(progress: "Progress") -> list[str]:
    """Return what was done, what it would have cost, and what is believed."""
    from fewjoules.tuning.naming import optimiser_name

    news, result = progress.news, progress.news.result
    lines = [f"pilot {news.pilots}, {news.doing}"]
    if result is not None:
        spec = result.spec
        start = "" if spec.start == 0 else ", other weights"
        end = "blew up" if not result.alive else f"loss {result.final_loss():.3g}"
        reached = ", target reached" if result.reached else ""
        lines[0] += (
            f": {optimiser_name(spec.options)}, step size {spec.learning_rate:.3g}, H {spec.local_steps}{start}: {end} "
            f"after {result.local_steps_taken} steps{reached}"
        )
    lines.append(f"booked {_booked(progress)}")
    lines.append(f"best so far: {progress.optimiser}, step size {progress.learning_rate:.3g}, {_expected(progress)}")
    return lines


def _booked(progress: "Progress") -> str:
    """Say what the pilots would have cost so far, beside the budget."""
    news, steps, joules = progress.news, progress.allowed_client_steps, progress.allowed_joules
    of_steps = "" if steps is None else f" of {steps:,.0f}"
    of_joules = "" if joules is None else f" of {joules:.4g}"
    return f"{news.client_steps:,}{of_steps} client-steps, {news.joules:.4g}{of_joules} J"


def _expected(progress: "Progress") -> str:
    """Say how many steps are expected to the target, how sure that is, and the plan that follows."""
    from fewjoules.tuning.reach import STOPPED

    if progress.expected_steps > STOPPED:
        return "steps to the target unknown"
    text = f"about {progress.expected_steps:,.0f} steps to the target"
    if progress.spread is not None:
        low, high = (progress.expected_steps * math.exp(sign * 2.0 * progress.spread) for sign in (-1, 1))
        text += f" ({low:,.0f} to {high:,.0f})"
    if progress.plan is not None:
        text += f", plan: H {progress.plan.local_steps}, {progress.plan.energy_joules:.4g} J"
    return text
