"""The profiles that ship with FewJoules, one TOML file each beside this module."""

from importlib import resources

from fewjoules.errors import InvalidInputError, shown
from fewjoules.profiles.profile import Profile

_FILES = resources.files("fewjoules.profiles")


def profile_names() -> list[str]:
    """Names of all profiles that ship with FewJoules."""
    return sorted(file.name.removesuffix(".toml") for file in _FILES.iterdir() if file.name.endswith(".toml"))


def shipped_profile(name: str) -> Profile:
    """Return a profile by its name, or refuse a name that no profile has."""
    if name not in profile_names():
        names = ", ".join(profile_names())
        raise InvalidInputError(f"profile must be one of {names}, or a file named *.toml, got {shown(name)}")
    return Profile.from_text(_FILES.joinpath(f"{name}.toml").read_text(encoding="utf-8"), name)
