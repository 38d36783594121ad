"""Precision of products and convolutions on a GPU."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch


@contextlib.contextmanager
def arithmetic(precision: str) -> Iterator[None]:
    """Use TF32 or full float32 for products and convolutions on a GPU; models switch to bfloat16 themselves."""
    settings: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [setting.allow_tf32 for setting in settings]
    for setting in settings:
        setting.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        for setting, value in zip(settings, before, strict=True):
            setting.allow_tf32 = value
