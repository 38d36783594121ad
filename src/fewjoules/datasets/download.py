"""Download one file over https; check its size and checksum while it streams, and never leave it half written."""

import contextlib
import hashlib
import http.client
import os
import secrets
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO
from urllib.parse import urlsplit

from fewjoules.datasets.sources import RemoteFile
from fewjoules.errors import InvalidInputError

TIMEOUT_SECONDS = 30.0  # without receiving a byte
_CHUNK_BYTES = 1 << 18
_LOCAL_HOSTS = ("127.0.0.1", "localhost")


def download(
    file: RemoteFile,
    folder: Path,
    *,
    progress: Callable[[int], None] | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Path:
    """Fetch the file into the folder; ``progress`` gets the bytes so far. A failure leaves nothing behind."""
    _require_safe(file.url)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (
            _temporary(folder, file.name) as (stream, part),
            contextlib.closing(_chunks(file.url, timeout_seconds)) as chunks,
        ):
            _copy(chunks, stream, file, progress or (lambda done_bytes: None))
            stream.flush()
            os.fsync(stream.fileno())
            os.replace(part, folder / file.name)
    except OSError as error:
        raise InvalidInputError(f"{folder / file.name} cannot be written ({error.strerror or error})") from error
    return folder / file.name


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but only to addresses that are allowed themselves."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """Return the next request, or refuse its address."""
        _require_safe(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _require_safe(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOCAL_HOSTS):
        raise InvalidInputError(f"an address must start with https:// (http:// for this machine only), got {url!r}")


@contextlib.contextmanager
def _network_errors(url: str) -> Iterator[None]:
    try:
        yield
    except urllib.error.HTTPError as error:
        error.close()
        raise InvalidInputError(f"{url} cannot be downloaded (status {error.code}, {error.reason})") from error
    except (http.client.HTTPException, OSError) as error:
        reason = getattr(error, "reason", None) or str(error) or type(error).__name__
        raise InvalidInputError(f"{url} cannot be downloaded ({reason})") from error


def _chunks(url: str, timeout_seconds: float) -> Generator[bytes, None, None]:
    opener = urllib.request.build_opener(_SafeRedirects)
    request = urllib.request.Request(url, headers={"User-Agent": "fewjoules", "Accept-Encoding": "identity"})
    with _network_errors(url):
        response = opener.open(request, timeout=timeout_seconds)
    with response:
        while True:
            with _network_errors(url):
                chunk = response.read(_CHUNK_BYTES)
            if not chunk:
                return
            yield chunk


@contextlib.contextmanager
def _temporary(folder: Path, name: str) -> Iterator[tuple[BinaryIO, Path]]:
    """Open a new file in the folder under a hidden name; remove it at the end unless it was renamed."""
    part = folder / f".{name}.{secrets.token_hex(4)}.part"
    try:
        with part.open("xb") as stream:
            yield stream, part
    finally:
        part.unlink(missing_ok=True)


def _copy(chunks: Iterable[bytes], stream: BinaryIO, file: RemoteFile, progress: Callable[[int], None]) -> None:
    algorithm, _, expected = file.digest.partition(":")
    digest = hashlib.new(algorithm, usedforsecurity=algorithm != "md5")
    done = 0
    for chunk in chunks:
        done += len(chunk)
        if done > file.size_bytes:
            raise InvalidInputError(f"{file.url} must have {file.size_bytes} bytes, got more")
        digest.update(chunk)
        stream.write(chunk)
        progress(done)
    if done != file.size_bytes:
        raise InvalidInputError(f"{file.url} must have {file.size_bytes} bytes, got {done}")
    if digest.hexdigest() != expected:
        raise InvalidInputError(f"{file.url} must have the {algorithm} {expected}, got {digest.hexdigest()}")
