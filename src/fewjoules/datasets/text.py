"""Text as tokens: a fixed alphabet, and windows of characters whose targets are the characters that follow."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fewjoules.arrays import IntArray
from fewjoules.errors import InvalidInputError, require_integer

ALPHABET = "\n !\"&'(),-.:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
MAX_CONTEXT = 4096
TEST_SHARE = 0.1  # of each role's text, at its end

_TOKENS = np.full(256, -1, dtype=np.int64)
_TOKENS[np.frombuffer(ALPHABET.encode("ascii"), dtype=np.uint8)] = np.arange(len(ALPHABET))


@dataclass(frozen=True, kw_only=True, eq=False)
class TextDataset:
    """Windows (n, context) of tokens in int64; the target of each token is the one after it in the text.

    ``train_roles`` and ``test_roles`` (n,) tell which of ``roles`` says each window.
    """

    name: str
    train_inputs: IntArray
    train_targets: IntArray
    train_roles: IntArray
    test_inputs: IntArray
    test_targets: IntArray
    test_roles: IntArray
    roles: tuple[str, ...]
    classes = len(ALPHABET)

    @property
    def context(self) -> int:
        """Tokens of a window."""
        return int(self.train_inputs.shape[1])

    @cached_property
    def sha256(self) -> str:
        """Hex digest over shape and bytes of every array: equal data sets have equal digests."""
        digest = hashlib.sha256()
        for key in ("train_inputs", "train_targets", "train_roles", "test_inputs", "test_targets", "test_roles"):
            array = getattr(self, key)
            digest.update(f"{key} {array.dtype.str} {array.shape}\n".encode())
            digest.update(np.ascontiguousarray(array).reshape(-1).data)
        return digest.hexdigest()


def tokens_of(text: str) -> IntArray:
    """Return the place of each character in the alphabet; characters outside of it are left out."""
    found = _TOKENS[np.frombuffer(text.encode("ascii", errors="ignore"), dtype=np.uint8)]
    return found[found >= 0]


def text_of(tokens: IntArray) -> str:
    """Return the characters of tokens."""
    return "".join(ALPHABET[token] for token in tokens.tolist())


def text_dataset(name: str, texts: Mapping[str, str], context: int) -> TextDataset:
    """Cut the text of each role into windows that share no input; its last tenth is for tests.

    Roles too short for one window of training are left out.
    """
    require_integer("context", context, low=1, high=MAX_CONTEXT)
    parts: dict[str, list[tuple[IntArray, IntArray]]] = {"train": [], "test": []}
    roles: list[str] = []
    for role, text in texts.items():
        tokens = tokens_of(text)
        end = len(tokens) - round(TEST_SHARE * len(tokens))
        train = _windows(tokens[:end], context)
        if len(train[0]):
            roles.append(role)
            parts["train"].append(train)
            parts["test"].append(_windows(tokens[end:], context))
    arrays = {}
    for part, found in parts.items():
        if not any(len(inputs) for inputs, _ in found):
            raise InvalidInputError(f"{name}: no role is long enough for one window of context = {context} to {part}")
        arrays[f"{part}_inputs"] = np.concatenate([inputs for inputs, _ in found])
        arrays[f"{part}_targets"] = np.concatenate([targets for _, targets in found])
        arrays[f"{part}_roles"] = np.repeat(np.arange(len(roles)), [len(inputs) for inputs, _ in found])
    return TextDataset(name=name, roles=tuple(roles), **arrays)


def _windows(tokens: IntArray, context: int) -> tuple[IntArray, IntArray]:
    """Return inputs and targets (n, context) of neighbouring windows; what is left at the end is dropped."""
    number = max(0, len(tokens) - 1) // context
    used = number * context
    return tokens[:used].reshape(number, context), tokens[1 : used + 1].reshape(number, context)
