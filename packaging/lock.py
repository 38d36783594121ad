"""Turn what ``pip freeze`` prints into constraints.txt: versions for any index, without PyTorch and FewJoules."""

import sys

OWN = ("fewjoules", "fewjoules-reproduction")
PINNED = ("torch", "triton", "setuptools", "pip")  # torch by the Makefile, the others with it or with the interpreter


def constraints(frozen: list[str]) -> list[str]:
    """Return the lines to write, sorted by name; links to files and local versions are no part of a constraint."""
    kept = []
    for line in frozen:
        name, _, version = line.strip().partition("==")
        left_out = name.lower() in (*OWN, *PINNED) or name.lower().startswith("nvidia-")
        if version and not left_out and not name.startswith("#"):
            kept.append(f"{name}=={version.partition('+')[0]}")
    return sorted(kept, key=str.lower)


if __name__ == "__main__":
    sys.stdout.write("".join(f"{line}\n" for line in constraints(sys.stdin.readlines())))
