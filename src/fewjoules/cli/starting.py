"""What a command does before its first round, on a line of a terminal that is drawn at once and then disappears."""

import contextlib


class Starting:
    """The line; elsewhere than on a terminal nothing is shown."""

    def __init__(self, text: str = "loading PyTorch") -> None:
        """Show the line."""
        from fewjoules.cli.live import live_console, live_line

        self._stack = contextlib.ExitStack()
        console = live_console()
        self._show = None if console is None else self._stack.enter_context(live_line(console))
        self.show(text)

    def show(self, text: str) -> None:
        """Replace what the line says."""
        if self._show is not None:
            self._show(text)

    def close(self) -> None:
        """Remove the line."""
        self._show = None
        self._stack.close()
