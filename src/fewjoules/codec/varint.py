"""Numbers of any size in few bytes, and a reader that never runs past its data."""

from fewjoules.errors import CorruptPayloadError

_MAX_BYTES = 9  # 63 bits


def varint(value: int) -> bytes:
    """Write a number with seven bits per byte, lowest first; the high bit says that more follow."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class Reader:
    """Reads a payload from its front; missing bytes raise ``CorruptPayloadError``."""

    def __init__(self, data: memoryview) -> None:
        """Start at the first byte."""
        self._data = data
        self._offset = 0

    @property
    def rest(self) -> memoryview:
        """Bytes not read yet."""
        return self._data[self._offset :]

    def take(self, count: int, what: str) -> memoryview:
        """Read the next ``count`` bytes; ``what`` names them in errors."""
        if count > len(self._data) - self._offset:
            left = len(self._data) - self._offset
            raise CorruptPayloadError(f"the payload is cut off: {what} needs {count} more bytes, got {left}")
        part = self._data[self._offset : self._offset + count]
        self._offset += count
        return part

    def varint(self, what: str) -> int:
        """Read a number written by ``varint``; only its shortest form is valid."""
        value = 0
        for i in range(_MAX_BYTES):
            byte = self.take(1, what)[0]
            value |= (byte & 0x7F) << (7 * i)
            if byte < 0x80:
                if byte == 0 and i:
                    break
                return value
        raise CorruptPayloadError(f"{what} must be a number of at most 63 bits in its shortest form")
