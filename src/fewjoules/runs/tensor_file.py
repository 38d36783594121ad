"""Write a safetensors file a block at a time: the length of a JSON header in 8 bytes, the header, and raw bytes.

The library's own writer needs every tensor in memory, and the bytes of the file once more.
"""

import json
import zlib
from collections.abc import Callable, Mapping
from typing import BinaryIO

import torch

from fewjoules.engine.algorithm.saved import SavedTensor

_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_ALIGNMENT = 8
_LONGEST_CHECKSUM = 2**32 - 1

Checksums = Mapping[str, int]


def write_tensors(
    stream: BinaryIO, tensors: Mapping[str, SavedTensor], metadata: Callable[[Checksums], dict[str, str]]
) -> None:
    """Write tensors; ``metadata`` gets the CRC-32 of each, known only after they are written."""
    ordered = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))  # so that all are aligned
    entries = _entries({name: tensors[name] for name in ordered})
    room = len(_header(entries, metadata(dict.fromkeys(tensors, _LONGEST_CHECKSUM))))
    room += -room % _ALIGNMENT
    stream.write(bytes(_ALIGNMENT + room))
    checksums = {name: _write(stream, tensors[name]) for name in ordered}
    header = _header(entries, metadata({name: checksums[name] for name in tensors}))
    stream.seek(0)
    stream.write(room.to_bytes(_ALIGNMENT, "little") + header.ljust(room))


def checksum(tensor: torch.Tensor, start: int = 0) -> int:
    """CRC-32 of a tensor's bytes, continued from that of the bytes before."""
    return zlib.crc32(_bytes(tensor), start)


def _write(stream: BinaryIO, tensor: SavedTensor) -> int:
    crc = 0
    for block in tensor.blocks():
        stream.write(_bytes(block))
        crc = checksum(block, crc)
    return crc


def _bytes(tensor: torch.Tensor) -> memoryview:
    if not tensor.numel():  # an empty one from NumPy has stride 0, which PyTorch does not view as bytes
        return memoryview(b"")
    return tensor.reshape(-1).view(torch.uint8).numpy().data


def _entries(tensors: Mapping[str, SavedTensor]) -> dict[str, object]:
    entries: dict[str, object] = {}
    end = 0
    for name, tensor in tensors.items():
        start, end = end, end + tensor.dtype.itemsize * torch.Size(tensor.shape).numel()
        entries[name] = {"dtype": _DTYPES[tensor.dtype], "shape": tensor.shape, "data_offsets": [start, end]}
    return entries


def _header(entries: Mapping[str, object], metadata: dict[str, str]) -> bytes:
    return json.dumps({"__metadata__": metadata, **entries}, separators=(",", ":")).encode()
