"""How exact the arithmetic of a GPU is."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch


@contextlib.contextmanager
def arithmetic(precision: str) -> Iterator[None]:
    """Products and convolutions on a GPU in full float32, or in TF32; bfloat16 is the model's own business."""
    settings: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [setting.allow_tf32 for setting in settings]
    for setting in settings:
        setting.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        for setting, value in zip(settings, before, strict=True):
            setting.allow_tf32 = value
