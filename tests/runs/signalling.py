"""Signals that ``fewjoules`` sends itself once a file is there: another process, which looks for it, may come too late.

Run as a program this module is ``fewjoules`` with the rest of its arguments: ``FILE SIGNAL ARGUMENT ...``.
"""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path


def signal_after(file: Path, numbers: Sequence[int]) -> None:
    """Let this process send itself the signals as soon as it has moved a file to this place for the first time."""
    replace, left = os.replace, list(numbers)

    def replaced(source: Path, target: Path) -> None:
        replace(source, target)
        while left and Path(target).resolve() == file.resolve():
            signal.raise_signal(left.pop(0))

    os.replace = replaced


if __name__ == "__main__":
    from fewjoules.cli import main

    signal_after(Path(sys.argv[1]), [signal.Signals[sys.argv[2]]])
    sys.argv = ["fewjoules", *sys.argv[3:]]
    main()
