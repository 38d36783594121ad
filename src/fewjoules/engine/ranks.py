"""Processes that train one run together through ``torch.distributed``: each is a rank, and all take the same decisions.

Small values travel between the hosts (Gloo), tensors of a GPU between the GPUs (NCCL). A rank that fails tells the
others at the next exchange, so that none of them waits for it; one that is killed breaks its connections, which the
others notice.
"""

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import torch
import torch.distributed as dist

from fewjoules.arrays import FloatArray
from fewjoules.errors import DivergedError, RankError

Task = TypeVar("Task")
Result = TypeVar("Result")
AnyError = TypeVar("AnyError", bound=Exception)
_FINE, _DIVERGED, _FAILED = 0, 1, 2
_GLOO_SOURCE = re.compile(r"^\[/\S*\] ")  # the file and line of Gloo that complains
_SEGMENT = 1 << 16  # sums that travel in one message, so that one rank adds while another sends


class Ranks:
    """The processes of a run; this one has number ``rank`` of ``size``. Every rank must make the same calls."""

    rank: int
    size: int

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        """Use the process group that is open; with one rank there is nobody to talk to."""
        self.rank, self.size = rank, size

    @property
    def is_first(self) -> bool:
        """Whether this rank is the one that writes files and speaks to people."""
        return self.rank == 0

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Do something that may fail on any rank; if it does, all of them raise an error.

        Divergence on several ranks is told in the words of the first. After any other error, ranks that did not fail
        raise ``RankError`` with its sentence.
        """
        try:
            yield
        except Exception as error:
            if not isinstance(error, RankError):  # which all ranks know already
                self._tell(error)
            raise
        self._tell(None)

    def any(self, flag: bool) -> bool:
        """Tell whether the flag is set on some rank."""
        return bool(self.rows(np.array([[flag]], dtype=np.float64), [1] * self.size).any())

    def of_first(self, flag: bool) -> bool:
        """Return the flag of the first rank."""
        return bool(self.rows(np.array([[flag]], dtype=np.float64), [1] * self.size)[0, 0])

    def shared_out(self, tasks: Sequence[Task], work: Callable[[Sequence[Task]], list[Result]]) -> list[Result]:
        """Do a share of the tasks on every rank; return what ``work`` gives for each of all tasks: lists of numbers."""
        edges = [len(tasks) * rank // self.size for rank in (self.rank, self.rank + 1)]
        if self.size == 1:
            return work(tasks)
        with self.together():
            own = json.dumps(work(tasks[slice(*edges)]))
        return [one for told in self.texts(own) for one in json.loads(told)]

    def texts(self, text: str) -> list[str]:
        """Return the text of every rank."""
        if self.size == 1:
            return [text]
        data = np.frombuffer(text.encode(), dtype=np.uint8)
        lengths = self.rows(np.array([[float(data.size)]]), [1] * self.size)[:, 0].astype(int).tolist()
        told = self._gathered(torch.from_numpy(data.copy()), lengths)
        return [one.numpy().tobytes().decode() for one in told]

    def rows(self, own: FloatArray, counts: Sequence[int]) -> FloatArray:
        """Return the rows of all ranks, one rank after the other; rank r has ``counts[r]`` of them, float64."""
        if self.size == 1:
            return own
        return torch.cat(self._gathered(torch.from_numpy(np.ascontiguousarray(own)), counts)).numpy()

    def stacked(self, own: torch.Tensor, counts: Sequence[int]) -> torch.Tensor:
        """Return the rows of a tensor of all ranks, where this one has ``counts[rank]`` of them."""
        return own if self.size == 1 else torch.cat(self._gathered(own, counts))

    def summed_in_order(self, add_to: Callable[[torch.Tensor, int], None], sums: torch.Tensor) -> None:
        """Let one rank after the other add to ``sums``, which start at zero; the last rank then has all of them.

        ``add_to(segment, first)`` adds to the entries from ``first`` on. The order of additions is that of the ranks,
        so the result does not depend on how what is added is split over them.
        """
        sending: list[dist.Work] = []
        with _connected():
            for first in range(0, sums.numel(), _SEGMENT):
                segment = sums[first : first + _SEGMENT]
                if self.rank > 0:
                    dist.recv(segment, self.rank - 1)
                add_to(segment, first)
                if self.rank < self.size - 1:
                    sending.append(_work(dist.isend(segment, self.rank + 1)))
            for one in sending:
                one.wait()

    def from_last(self, tensor: torch.Tensor) -> None:
        """Overwrite the tensor with that of the last rank."""
        self._broadcast(tensor, self.size - 1)

    def from_first(self, tensor: torch.Tensor) -> None:
        """Overwrite the tensor with that of the first rank."""
        self._broadcast(tensor, 0)

    def send(self, tensor: torch.Tensor, to: int) -> None:
        """Send a tensor to another rank, which calls ``receive``."""
        with _connected():
            dist.send(tensor, to)

    def receive(self, tensor: torch.Tensor, sender: int) -> torch.Tensor:
        """Fill the tensor with the one that another rank sends, and return it."""
        with _connected():
            dist.recv(tensor, sender)
        return tensor

    def _broadcast(self, tensor: torch.Tensor, sender: int) -> None:
        if self.size > 1:
            with _connected():
                dist.broadcast(tensor, sender)

    def _tell(self, error: Exception | None) -> None:
        """Exchange how it went; raise what happened elsewhere."""
        if self.size == 1:
            return
        code = _FINE if error is None else _DIVERGED if isinstance(error, DivergedError) else _FAILED
        codes = self.rows(np.array([[float(code)]]), [1] * self.size)[:, 0].tolist()
        if not any(codes):
            return
        if error is not None:
            known_to_ranks(error)
        sentences = self.texts("" if error is None else " ".join(str(error).split()) or type(error).__name__)
        worst = int(max(codes))
        first = codes.index(worst)
        if worst == _DIVERGED:
            raise known_to_ranks(DivergedError(sentences[first])) from error
        if code != _FAILED:
            raise known_to_ranks(RankError(f"rank {first} failed: {sentences[first]}")) from error

    def _gathered(self, own: torch.Tensor, counts: Sequence[int]) -> list[torch.Tensor]:
        """Return the tensors of all ranks, which differ in their number of rows."""
        most = max(counts)
        padded = own.new_zeros((most, *own.shape[1:]))
        padded[: own.shape[0]] = own
        found = [torch.empty_like(padded) for _ in counts]
        if most:
            with _connected():
                dist.all_gather(found, padded)
        return [one[:count] for one, count in zip(found, counts, strict=True)]


ALONE = Ranks()


def known_to_ranks(error: AnyError) -> AnyError:
    """Return an error that all ranks have heard of at the same point: they may still do something together."""
    error.known_to_ranks = True  # type: ignore[attr-defined]
    return error


def is_known_to_ranks(error: BaseException) -> bool:
    """Whether all ranks have heard of an error."""
    return getattr(error, "known_to_ranks", False)


@contextlib.contextmanager
def _connected() -> Iterator[None]:
    """Turn the error of a broken connection into one sentence."""
    try:
        yield
    except RuntimeError as error:
        reason = _GLOO_SOURCE.sub("", str(error).strip().split("\n")[0]).split(". ")[0][:200]
        raise RankError(
            f"another rank ended or did not answer in time, and its own message says why; here it shows as: {reason}"
        ) from error


def _work(started: dist.Work | None) -> dist.Work:
    assert started is not None  # this rank is part of the group
    return started
