"""Readers of a user's samples: rows of arrays that may lie on disk, and items of a map-style data set."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from fewjoules.arrays import IntArray
from fewjoules.engine.models.tree import Tree, described, leaves, map_tree, rebuilt, shapes_of
from fewjoules.engine.simulator.federation import Batch
from fewjoules.errors import InvalidInputError
from fewjoules.own_code import first_line
from fewjoules.runs.page_cache import ask_for_rows, file_of
from fewjoules.runs.plain_arrays import is_array, plain_tree, require_plain


def is_on_disk(array: Any) -> bool:
    """Tell whether rows are read from a file: memory maps of NumPy and PyTorch, and arrays in chunks (h5py, Zarr)."""
    if torch.is_tensor(array):
        return array.device.type == "cpu" and array.untyped_storage().filename is not None
    if not isinstance(array, np.ndarray):
        return is_array(array) and hasattr(array, "chunks")
    return isinstance(array, np.memmap) or file_of(array) is not None


def is_data_set(value: Any) -> bool:
    """Tell whether a value is a map-style data set: it has a length and items, and is no array and no tree of them."""
    if is_array(value) or isinstance(value, Mapping | tuple | str | bytes):
        return False
    if isinstance(value, list):  # of two arrays: inputs and targets
        return len(value) != 2 or all(isinstance(item, Mapping | tuple) for item in value)
    return hasattr(value, "__len__") and hasattr(value, "__getitem__")


class ArrayReader:
    """Rows of the arrays of two trees, inputs and targets. Nothing but these rows is read."""

    def __init__(self, inputs: Any, targets: Any, name: str) -> None:
        """Refuse arrays of different lengths, and no rows."""
        self.name = name
        self._trees: tuple[Any, Any] = _in_order(inputs), _in_order(targets)
        arrays = [array for tree in self._trees for array in arrays_of(tree)]
        for array in arrays:
            if not is_array(array):
                raise InvalidInputError(f"{name} must hold arrays beside those on disk, got {type(array).__name__}")
        if any(len(array.shape) == 0 or array.shape[0] != arrays[0].shape[0] for array in arrays):
            shapes = " and ".join(str(tuple(array.shape)) for array in arrays)
            raise InvalidInputError(f"{name} must have as many inputs as targets, at least one, got shapes {shapes}")
        self._length = int(arrays[0].shape[0])
        _require_samples(name, self._length)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Number of rows."""
        return self._length

    def read(self, numbers: IntArray) -> Batch:
        """Return these rows of every array."""
        inputs, targets = (None if tree is None else self._rows(tree, numbers) for tree in self._trees)
        batch = inputs, _as_targets(targets)
        _require_finite(batch, self.name, numbers)
        return batch

    def prepare(self, numbers: IntArray) -> bool:
        """Ask the system for these rows; arrays that it does not know are read ahead."""
        arrays = [array for tree in self._trees for array in arrays_of(tree)]
        for array in arrays:
            if isinstance(array, np.ndarray):
                ask_for_rows(array, numbers)
        return not all(isinstance(array, np.ndarray | torch.Tensor) for array in arrays)

    def labels(self) -> IntArray | None:
        """Return the targets if they are one whole number for each sample."""
        targets = self._trees[1]
        if not is_array(targets) or len(targets.shape) != 1:
            return None
        found = np.asarray(targets[:])
        return found.astype(np.int64) if np.issubdtype(found.dtype, np.integer) else None

    def _rows(self, tree: Any, numbers: IntArray) -> Tree:
        if isinstance(tree, Mapping):
            return {key: self._rows(one, numbers) for key, one in tree.items()}
        if isinstance(tree, tuple):
            return tuple(self._rows(one, numbers) for one in tree)
        if tree.shape[0] != self._length:
            raise InvalidInputError(
                f"{self.name} must keep its {self._length} samples while it is trained on, got {tree.shape[0]}"
            )
        try:
            if isinstance(tree, np.ndarray | torch.Tensor):
                rows = tree[numbers]
            else:
                with self._lock:  # libraries that read files need not be thread-safe
                    rows = tree[numbers]
        except Exception as error:
            raise InvalidInputError(f"{self.name}[{numbers[0]}] cannot be read: {first_line(error)}") from error
        require_plain(rows, self.name)
        try:
            return _leaf(rows)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InvalidInputError(f"{self.name} must hold arrays of numbers: {first_line(error)}") from error


class DataSetReader:
    """Items of a map-style data set: (input, target), or a dict or a tensor without a target."""

    def __init__(self, data: Any, name: str) -> None:
        """Refuse a data set without items."""
        self.name, self._data = name, data
        try:
            self._length = len(data)
        except Exception as error:
            raise InvalidInputError(f"{name} must be a data set with a length: {first_line(error)}") from error
        _require_samples(name, self._length)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Number of items."""
        return self._length

    def read(self, numbers: IntArray) -> Batch:
        """Return these items, stacked."""
        with self._lock:  # data sets need not be thread-safe
            self._require_length()
            items = [self._sample(number, item) for number, item in self._items(numbers.tolist())]
            self._require_length()
        pattern = [shapes_of(tree, lead=0) for tree in items[0]]
        for number, item in zip(numbers.tolist(), items, strict=True):
            if [shapes_of(tree, lead=0) for tree in item] != pattern:
                raise InvalidInputError(
                    f"{self.name}[{number}] must have the shapes and types of {self.name}[{numbers[0]}], "
                    f"{_described(items[0])}, got {_described(item)}; pad or crop samples that differ"
                )
        inputs, targets = (_stacked([item[part] for item in items]) for part in (0, 1))
        batch = inputs, _as_targets(targets)
        _require_finite(batch, self.name, numbers)
        return batch

    def prepare(self, numbers: IntArray) -> bool:
        """Return True: items are made while others are trained on."""
        return True

    def labels(self) -> IntArray | None:
        """Return None: every item would have to be read."""
        return None

    def _require_length(self) -> None:
        if len(self._data) != self._length:
            raise InvalidInputError(
                f"{self.name} must keep its {self._length} samples while it is trained on, got {len(self._data)}"
            )

    def _items(self, numbers: list[int]) -> Iterator[tuple[int, Any]]:
        """Return the items with their numbers, all at once where the data set can; an error names the item."""
        if hasattr(self._data, "__getitems__"):
            try:
                found = list(self._data.__getitems__(numbers))
            except Exception:
                found = []  # one by one, to name the item that fails
            if len(found) == len(numbers):
                yield from zip(numbers, found, strict=True)
                return
        for number in numbers:
            try:
                yield number, self._data[number]
            except Exception as error:
                raise InvalidInputError(f"{self.name}[{number}] cannot be read: {first_line(error)}") from error

    def _sample(self, number: int, item: Any) -> tuple[Tree, Tree]:
        if isinstance(item, tuple | list):
            if len(item) not in (1, 2):
                raise InvalidInputError(
                    f"{self.name}[{number}] must be (input, target), a dict or a tensor, got {len(item)} values"
                )
            item = (item[0], item[1] if len(item) == 2 else None)
        else:
            item = (item, None)
        own = f"{self.name}[{number}]"
        inputs, targets = (plain_tree(tree, own) for tree in item)
        try:
            sample = _tree(inputs), None if targets is None else _tree(targets)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InvalidInputError(f"{own} must hold tensors, arrays or numbers: {first_line(error)}") from error
        for array in [*leaves(sample[0]), *leaves(sample[1])]:
            require_plain(array, own)
        return sample


def _require_samples(name: str, length: int) -> None:
    if length < 1:
        raise InvalidInputError(f"{name} must have at least one sample, got {length}")


def _require_finite(batch: Batch, name: str, numbers: IntArray) -> None:
    for kind, tree in zip(("inputs", "targets"), batch, strict=True):
        for array in leaves(tree):
            if array.is_floating_point() and not bool(torch.isfinite(array).all()):
                finite = torch.isfinite(array.reshape(len(numbers), -1)).all(1)
                raise InvalidInputError(
                    f"{name}[{numbers[int(finite.int().argmin())]}] must have finite {kind}, got NaN or infinity"
                )


def _in_order(given: Any) -> Any:
    """Return a tree of arrays with its dicts in the order of their keys, so that all trees have the same leaves."""
    if isinstance(given, Mapping):
        return {key: _in_order(given[key]) for key in sorted(given)}
    return tuple(_in_order(one) for one in given) if isinstance(given, tuple) else given


def arrays_of(tree: Any) -> list[Any]:
    """Return the leaves of a tree of arrays, which need not be tensors."""
    if isinstance(tree, Mapping | tuple):
        return [array for one in (tree.values() if isinstance(tree, Mapping) else tree) for array in arrays_of(one)]
    return [] if tree is None else [tree]


def _tree(value: Any) -> Tree:
    if isinstance(value, Mapping):
        return {key: _entry(key, value[key]) for key in sorted(value)}
    return tuple(_tree(one) for one in value) if isinstance(value, tuple) else _leaf(value)


def _entry(key: str, value: Any) -> Tree:
    try:
        return _tree(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{key!r} is of type {type(value).__name__}") from error


def _leaf(value: Any) -> torch.Tensor:
    """Return an array, a number or a list of numbers as a tensor; floats are float32, the type of weights."""
    if isinstance(value, np.ndarray) and not (value.dtype.isnative and value.flags.writeable):
        value = value.astype(value.dtype.newbyteorder("="))
    tensor = value if torch.is_tensor(value) else torch.as_tensor(np.asarray(value) if is_array(value) else value)
    return tensor.detach().cpu().to(torch.float32 if tensor.is_floating_point() else tensor.dtype)


def _as_targets(tree: Tree) -> Tree:
    """Return targets with whole numbers as int64."""
    return None if tree is None else map_tree(lambda one: one if one.is_floating_point() else one.long(), tree)


def _stacked(trees: Sequence[Tree]) -> Tree:
    columns = zip(*(leaves(tree) for tree in trees), strict=True)
    return rebuilt(trees[0], [torch.stack(column) for column in columns])


def _described(item: tuple[Tree, Tree]) -> str:
    inputs, targets = item
    return described(inputs, 0) + ("" if targets is None else f" with target {described(targets, 0)}")
