"""Device profiles: the costs of a kind of device, with a source for every number. docs/costs.md lists the sources."""

from fewjoules.profiles.profile import MARKS, Profile, Source, keys_of
from fewjoules.profiles.shipped import profile_names, shipped_profile

__all__ = ["MARKS", "Profile", "Source", "keys_of", "profile_names", "shipped_profile"]
