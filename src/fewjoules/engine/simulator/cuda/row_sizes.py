"""Bytes of the float32 messages of a chunk: the GPU sizes long ones, the host short and dense ones."""

import contextlib
from collections.abc import Callable, Iterator

import numpy as np
import torch

from fewjoules.arrays import IntArray
from fewjoules.codec.sizes import float32_sizes
from fewjoules.engine.simulator.cuda.sizes import MessageSizer, sizable
from fewjoules.engine.simulator.cuda.transfer import to_host


class RowSizer:
    """Sizes messages of ``kept`` entries each, stored one after the other in flat tensors.

    No round waits for sizes: the GPU computes them in a separate stream, during the next round's steps.
    """

    def __init__(self, kept: IntArray, size: int, device: torch.device) -> None:
        """Decide, by shapes alone, which rows the GPU sizes."""
        self._size, self._kept = size, kept
        long = np.array([sizable(size, int(k)) for k in kept])
        self._on_gpu, self._on_host = np.flatnonzero(long), np.flatnonzero(~long)
        self._sizer = RecordedSizer(size, kept[long].tolist(), device) if long.any() else None
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        entries = np.repeat(long, kept)
        mixed = long.any() and not long.all()
        self._long = torch.from_numpy(np.flatnonzero(entries)).to(device) if mixed else None
        self._short = torch.from_numpy(np.flatnonzero(~entries)).to(device) if mixed else None

    @property
    def needs_host(self) -> bool:
        """Whether the host sizes some of the messages."""
        return bool(self._on_host.size)

    def sizes(self, positions: torch.Tensor, values: torch.Tensor) -> Callable[[IntArray], IntArray]:
        """Start sizing; the returned function waits for the bytes of a range of messages."""
        parts = []
        if self._sizer is not None:
            long = (positions, values) if self._long is None else (positions[self._long], values[self._long])
            parts.append(self._by_gpu(*long))
        if self.needs_host:
            short = (positions, values) if self._short is None else (positions[self._short], values[self._short])
            parts.append(self._by_host(*short))
        if len(parts) == 1:
            return parts[0]
        return lambda span: parts[0](span) + parts[1](span)

    def _by_gpu(self, positions: torch.Tensor, values: torch.Tensor) -> Callable[[IntArray], IntArray]:
        assert self._sizer is not None
        with _aside(self._stream, positions, values):
            (known,), ready = to_host(self._sizer(positions, values))

        def sizes(span: IntArray) -> IntArray:
            ready.synchronize()
            found = np.zeros(self._kept.size, dtype=np.int64)
            found[self._on_gpu] = known.numpy()
            return found[span]

        return sizes

    def _by_host(self, positions: torch.Tensor, values: torch.Tensor) -> Callable[[IntArray], IntArray]:
        (host_positions, host_values), ready = to_host(positions, values)
        ends = np.cumsum(self._kept[self._on_host])

        def sizes(span: IntArray) -> IntArray:
            ready.synchronize()
            found = np.zeros(span.size, dtype=np.int64)
            here = np.isin(self._on_host, span)
            if not here.any():
                return found
            chosen = np.flatnonzero(here)
            counts = self._kept[self._on_host[chosen]]
            part = slice(int(ends[chosen[0]] - counts[0]), int(ends[chosen[-1]]))
            own = float32_sizes(self._size, host_positions.numpy()[part], host_values.numpy()[part], counts)
            found[np.searchsorted(span, self._on_host[chosen])] = own
            return found

        return sizes


@contextlib.contextmanager
def _aside(stream: torch.cuda.Stream | None, *given: torch.Tensor) -> Iterator[None]:
    """Run the body in another stream, once the given tensors are ready."""
    if stream is None:
        yield
        return
    stream.wait_stream(torch.cuda.current_stream(stream.device))
    with torch.cuda.stream(stream):
        yield
    for tensor in given:
        tensor.record_stream(stream)


class RecordedSizer:
    """A ``MessageSizer`` that runs as a recorded CUDA graph from its third call on."""

    def __init__(self, size: int, counts: list[int], device: torch.device) -> None:
        """Make the sizer; record nothing yet."""
        self._sizer = MessageSizer(size, counts, device)
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, positions: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Return the bytes of each message, int64."""
        self._calls += 1
        if not positions.is_cuda or self._calls < 3:
            return self._sizer(positions, values)
        if self._graph is None:
            self._positions, self._values = positions.clone(), values.clone()
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):  # other threads may wait for events
                self._sizes = self._sizer(self._positions, self._values)
        self._positions.copy_(positions)
        self._values.copy_(values)
        self._graph.replay()
        return self._sizes.clone()
