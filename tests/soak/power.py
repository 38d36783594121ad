"""What a power cut leaves of a folder: names and bytes that were synced, and nothing else.

``Recorder`` stands between a run and the system. Before each operation on the folder it notes what is safe on disk:
the bytes of files at their last fsync, and the entries of folders at theirs. A name that was never synced is gone, a
file that was never synced is empty, and a removal or a rename that was never synced has not happened.
"""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

OPERATIONS = ("mkdir", "fsync", "replace", "unlink", "rmdir")
State = dict[str, bytes | None]  # files with their bytes; None stands for a folder


class Recorder:
    """Notes every different state that a power cut would leave of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.states: list[State] = []
        self._bytes: dict[int, bytes] = {}
        self._entries: dict[int, dict[str, tuple[int, bool]]] = {}

    def install(self, patch: pytest.MonkeyPatch) -> None:
        for name in OPERATIONS:
            patch.setattr(os, name, self._recording(name, getattr(os, name)))

    def _recording(self, name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(*arguments: Any, **named: Any) -> Any:
            self._note()
            done = operation(*arguments, **named)
            if name == "fsync":
                self._synced(arguments[0])
            return done

        return recorded

    def _synced(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            with os.scandir(descriptor) as entries:
                self._entries[status.st_ino] = {one.name: (one.inode(), one.is_dir()) for one in entries}
        else:
            with open(f"/proc/self/fd/{descriptor}", "rb") as stream:
                self._bytes[status.st_ino] = stream.read()

    def _note(self) -> None:
        parent = self._entries.get(os.stat(self.folder.parent).st_ino, {})
        state = self._below(parent[self.folder.name][0], "") if self.folder.name in parent else {}
        if state not in self.states:
            self.states.append(state)

    def _below(self, inode: int, prefix: str) -> State:
        state: State = {}
        for name, (own, is_folder) in self._entries.get(inode, {}).items():
            if is_folder:
                state |= {prefix + name: None} | self._below(own, f"{prefix}{name}/")
            else:
                state[prefix + name] = self._bytes.get(own, b"")
        return state
