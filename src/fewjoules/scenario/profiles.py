"""Devices that name a profile take every key of it that they do not give themselves."""

from pathlib import Path
from typing import Any

from fewjoules.errors import InvalidInputError
from fewjoules.files import read_text
from fewjoules.profiles import Profile, keys_of, shipped_profile
from fewjoules.scenario.folder import ScenarioFolder
from fewjoules.scenario.schema.radios import TAIL
from fewjoules.scenario.schema.sentences import require_fitting
from fewjoules.scenario.schema.tables import DevicesTable

MAX_PROFILE_BYTES = 2**20
NOT_IN_PROFILES = ("name", "count", "profile", "provenance")
COMPUTE_FORMS = {
    "gpu": ("gpu",),
    "points": ("point",),
    "operations": ("joules_per_flop", "seconds_per_flop"),
    "steps": ("joules_per_step", "seconds_per_step", "joules_per_sample", "seconds_per_sample"),
}
DOWNLINK = ("downlink_joules_per_bit", "downlink_seconds_per_bit")
RADIO_DOWNLINK = ("downlink_watts", "downlink_bits_per_second")
UPLINK_FORMS = {
    "radio": ("radio",),
    "bits": ("joules_per_bit", "message_joules", "seconds_per_bit", "message_seconds"),
}

Entry = dict[str, Any]  # a [[device]] entry as it stands in the file


def with_profiles(devices: Any, folder: ScenarioFolder) -> tuple[Any, list[frozenset[str]]]:
    """Return the [[device]] entries completed by their profiles, and the dotted keys that each has from its profile."""
    if not isinstance(devices, list):
        return devices, []
    profiles: dict[str, Profile] = {}
    completed, taken = [], []
    for entry in devices:
        name = entry.get("profile") if isinstance(entry, dict) else None
        if not isinstance(name, str):
            completed.append(entry)
            taken.append(frozenset[str]())
            continue
        try:
            if name not in profiles:
                profiles[name] = load_profile(name, folder)
        except InvalidInputError as error:
            raise InvalidInputError(f"device {entry.get('name', '')!r}: {error}") from error
        rest = _kept(profiles[name].device, entry)
        completed.append(_merged(rest, entry))
        taken.append(frozenset(keys_of(rest)) - frozenset(keys_of(entry)))
    return completed, taken


def load_profile(name: str, folder: ScenarioFolder) -> Profile:
    """Return a profile that ships with FewJoules or, by a name that ends in .toml, one of the user's own."""
    if not name.endswith(".toml"):
        return shipped_profile(name)
    file: Path = folder.file("profile", name)
    profile = Profile.from_text(read_text(file, max_bytes=MAX_PROFILE_BYTES), name)
    _require_own_places(profile)
    try:
        require_fitting(DevicesTable, {"device": [profile.device | {"name": name}]})
    except InvalidInputError as error:
        raise InvalidInputError(str(error).replace("device", "profile", 1)) from error
    return profile


def _require_own_places(profile: Profile) -> None:
    for key in NOT_IN_PROFILES:
        if key in profile.device:
            raise InvalidInputError(f"profile {profile.name!r}: {key} belongs in [[device]], not in a profile")
    for key in (*TAIL, *RADIO_DOWNLINK):
        if f"radio.{key}" in profile.sources:
            raise InvalidInputError(
                f"profile {profile.name!r}: radio.{key} must stand in [device] (as one of "
                f"{', '.join((*TAIL, *DOWNLINK))}), where it stays for a device that states its own uplink"
            )


def _kept(profile: Entry, entry: Entry) -> Entry:
    """Return the profile without what the entry says in another form."""
    left = dict(profile)
    for forms in (COMPUTE_FORMS, UPLINK_FORMS):
        own = _form(entry, forms)
        if own is not None and own != _form(profile, forms):
            left = {key: value for key, value in left.items() if not any(key in keys for keys in forms.values())}
    if isinstance(radio := entry.get("radio"), dict):
        given = [*radio, *(DOWNLINK if any(key in radio for key in RADIO_DOWNLINK) else ())]
        left = {key: value for key, value in left.items() if key not in given}
    return left


def _form(entry: Entry, forms: dict[str, tuple[str, ...]]) -> str | None:
    """Return the first form of which the entry gives a key."""
    return next((form for form, keys in forms.items() if any(key in entry for key in keys)), None)


def _merged(profile: Entry, entry: Entry) -> Entry:
    merged = profile | entry
    for key, own in entry.items():
        given = profile.get(key)
        if isinstance(own, dict) and isinstance(given, dict):
            merged[key] = given | own
    return merged
