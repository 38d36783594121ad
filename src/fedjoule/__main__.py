"""``python -m fedjoule`` is the command ``fedjoule``."""

from fedjoule.cli import main

main()
