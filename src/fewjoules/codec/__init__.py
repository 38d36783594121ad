"""Bits on the wire: sparse updates as messages near the entropy limit, and the compressors that make them."""

from typing import TYPE_CHECKING, Any

from fewjoules.codec.update import SparseUpdate

if TYPE_CHECKING:
    from fewjoules.codec.aggregate import mean_of_updates
    from fewjoules.codec.frame import decode, encode, encoded_size

__all__ = ["SparseUpdate", "decode", "encode", "encoded_size", "mean_of_updates"]


def __getattr__(name: str) -> Any:
    """Load the coder on first use: it is compiled by numba, which is slow to import."""
    if name == "mean_of_updates":
        from fewjoules.codec import aggregate

        return aggregate.mean_of_updates
    if name in __all__:
        from fewjoules.codec import frame

        return getattr(frame, name)
    raise AttributeError(f"module 'fewjoules.codec' has no attribute {name!r}")
