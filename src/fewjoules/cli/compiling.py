"""Tell when numba compiles a kernel. It keeps what it compiled, so that this happens once per machine."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

ONCE = "compiling kernels, once per machine"


@contextlib.contextmanager
def compiling_told(begins: Callable[[str], None], ends: Callable[[], None]) -> Iterator[None]:
    """Call ``begins`` with a sentence when a kernel begins to compile and ``ends`` when it is compiled.

    Kernels that another one calls are compiled with it and not announced; kernels of the cache are not compiled.
    """
    from numba.core import event

    class Listener(event.Listener):
        """Counts how deep the current compilation is."""

        depth = 0

        def on_start(self, happened: Any) -> None:
            self.depth += 1
            if self.depth == 1:
                name = happened.data["dispatcher"].py_func.__name__
                begins(f"{ONCE}: {name.strip('_').replace('_', ' ')}")

        def on_end(self, happened: Any) -> None:
            self.depth -= 1
            if self.depth == 0:
                ends()

    with event.install_listener("numba:compile", Listener()):
        yield
