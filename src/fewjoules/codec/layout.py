"""The layout of a message: its header and checksum, which surround positions and values."""

from dataclasses import dataclass

from fewjoules.codec.values import BY_CODE, KINDS, ValueKind
from fewjoules.codec.varint import Reader, varint
from fewjoules.errors import CorruptPayloadError

MAGIC = b"FJ"
VERSIONS = tuple(sorted({kind.wire_version for kind in KINDS.values()}))
CHECKSUM_BYTES = 4
FRAME_BYTES = len(MAGIC) + 2 + CHECKSUM_BYTES  # version and flags are a byte each
_KIND_MASK, _CODER_SHIFT, _CODER_MASK, _CODED_FLAG, _UNUSED_FLAG = 0x0F, 4, 0x03, 0x40, 0x80


@dataclass(frozen=True, slots=True)
class Header:
    """Size of the vector, entries sent, kind of values, coder of positions, and whether modelled bytes are coded."""

    size: int
    count: int
    kind: ValueKind
    coder: int
    coded: bool

    def to_bytes(self) -> bytes:
        """Return the first bytes of a message."""
        flags = self.kind.code | self.coder << _CODER_SHIFT | (_CODED_FLAG if self.coded else 0)
        return MAGIC + bytes([self.kind.wire_version, flags]) + varint(self.size) + varint(self.count)

    @classmethod
    def read(cls, reader: Reader, max_size: int) -> "Header":
        """Read a header; refuse vectors of more than ``max_size`` entries."""
        *_, version, flags = reader.take(len(MAGIC) + 2, "the header")
        kind = BY_CODE.get(flags & _KIND_MASK)
        if kind is None or flags & _UNUSED_FLAG:
            raise CorruptPayloadError(f"the kind of the payload is unknown, got flags {flags:#04x}")
        if version != kind.wire_version:
            raise CorruptPayloadError(
                f"the version of a payload of kind {kind.name} must be {kind.wire_version}, got {version}"
            )
        size, count = reader.varint("the size"), reader.varint("the count")
        if size > max_size:
            raise CorruptPayloadError(f"the size of the payload must be at most max_size = {max_size}, got {size}")
        if count > size:
            raise CorruptPayloadError(f"the count of the payload must be at most its size {size}, got {count}")
        return cls(size, count, kind, flags >> _CODER_SHIFT & _CODER_MASK, bool(flags & _CODED_FLAG))
