"""Plain arrays of what users give: tables become arrays, and what would lose a part of its numbers is refused."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from fewjoules.errors import InvalidInputError
from fewjoules.own_code import first_line


def is_array(value: Any) -> bool:
    """Tell whether a value is an array, on disk or not: it has a shape, a type and rows."""
    return hasattr(value, "shape") and hasattr(value, "dtype") and hasattr(value, "__getitem__")


def plain_pair(given: Any, name: str) -> Any:
    """Return a client's arrays or data set with every table as an array; refuse arrays that are not plain."""
    if not isinstance(given, list):
        return plain_tree(given, name)
    pair = len(given) == 2 and not all(isinstance(item, Mapping | tuple) for item in given)
    return [plain_tree(one, name) for one in given] if pair else given


def plain_tree(given: Any, name: str) -> Any:
    """Return a tree of arrays with every table as an array; refuse arrays that are not plain."""
    if isinstance(given, Mapping):
        return {key: plain_tree(given[key], name) for key in given}
    if isinstance(given, tuple):
        return tuple(plain_tree(one, name) for one in given)
    array = _untabled(given, name)
    require_plain(array, name)
    return array


def require_plain(array: Any, name: str) -> None:
    """Refuse complex numbers, masked values and sparse tensors; what is no array may pass."""
    dtype = getattr(array, "dtype", None)
    if getattr(dtype, "kind", None) == "c" or getattr(dtype, "is_complex", False):
        raise InvalidInputError(
            f"{name} must hold real numbers, got {dtype}; give real and imaginary parts as two columns"
        )
    if torch.is_tensor(array) and (array.layout != torch.strided or array.is_nested):
        kind = "a nested tensor" if array.is_nested else f"a tensor of layout {array.layout}"
        raise InvalidInputError(f"{name} must hold dense arrays with samples of one shape, got {kind}")
    if _is_masked(array):
        raise InvalidInputError(f"{name} must hold arrays without masked values, got some; fill them or leave them out")


def _is_masked(array: Any) -> bool:
    if isinstance(array, list):
        return any(isinstance(one, np.ma.MaskedArray) and np.ma.is_masked(one) for one in array)
    return isinstance(array, np.ma.MaskedArray) and bool(np.ma.is_masked(array))


def _untabled(value: Any, name: str) -> Any:
    """Return a table or column of pandas or polars as an array; what is an array, on disk or not, stays."""
    stays = isinstance(value, np.ndarray | torch.Tensor | Dataset) or (is_array(value) and hasattr(value, "chunks"))
    try:
        if not stays and not isinstance(value, type):
            if hasattr(value, "to_numpy"):
                return value.to_numpy()
            if hasattr(value, "__array__") and not is_array(value):
                return np.asarray(value)
    except Exception as error:
        raise InvalidInputError(f"{name} must hold tables of numbers: {first_line(error)}") from error
    return value
