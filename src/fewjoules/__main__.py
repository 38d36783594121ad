"""``python -m fewjoules`` is the command ``fewjoules``."""

from fewjoules.cli import main

main()
