"""Trees of arrays: one tensor, or a dict or tuple of trees. Each sample of a data set is a tree, and so is a batch."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

Tree = Any  # a tensor, or a dict or tuple of trees


def map_tree(function: Callable[[torch.Tensor], torch.Tensor], tree: Tree) -> Tree:
    """Return the tree with every tensor replaced by the function of it; a tree of nothing, None, stays."""
    if tree is None:
        return None
    return function(tree) if torch.is_tensor(tree) else pytree.tree_map(function, tree)


def floats(tree: Tree) -> Tree:
    """Return a tree with its tensors as float32, except those of whole numbers; what is not a tensor stays."""
    return _as_float(tree) if torch.is_tensor(tree) else pytree.tree_map(_as_float, tree)


def _as_float(one: Any) -> Any:
    whole = not torch.is_tensor(one) or (not one.is_floating_point() and one.dtype != torch.bool)
    return one if whole else one.float()


def leaves(tree: Tree) -> list[Any]:
    """Return the tensors of a tree in order; a tree of nothing, None, has none."""
    if torch.is_tensor(tree):
        return [tree]
    return [] if tree is None else pytree.tree_leaves(tree)


def rebuilt(like: Tree, tensors: Sequence[torch.Tensor]) -> Tree:
    """Return a tree with these tensors in the places of those of ``like``."""
    return None if like is None else pytree.tree_unflatten(list(tensors), pytree.tree_structure(like))


def shapes_of(tree: Tree, lead: int = 1) -> Tree:
    """Return the tree of shapes, without the first ``lead`` axes, and types: what two trees must share to be joined."""
    return None if tree is None else pytree.tree_map(lambda one: (tuple(one.shape[lead:]), one.dtype), tree)


def arguments(inputs: Tree) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return how a model takes its inputs: a dict by name, a tuple by position, a tensor as the one argument."""
    if isinstance(inputs, dict):
        return (), inputs
    return (inputs if isinstance(inputs, tuple) else (inputs,)), {}


def call(model: nn.Module, inputs: Tree) -> Any:
    """Return the outputs of a model."""
    args, kwargs = arguments(inputs)
    return model(*args, **kwargs)


def described(tree: Tree, lead: int = 1) -> str:
    """Name shape and type without ``lead`` axes: "float32 of shape (3, 8)", "{tokens: int64 of shape (5,)}"."""
    if tree is None:
        return "nothing"
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{name}: {described(one, lead)}" for name, one in tree.items()) + "}"
    if isinstance(tree, tuple):
        return "(" + ", ".join(described(one, lead) for one in tree) + ")"
    return f"{str(tree.dtype).removeprefix('torch.')} of shape {tuple(tree.shape[lead:])}"
