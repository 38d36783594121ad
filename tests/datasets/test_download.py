"""Downloads are checked while they stream; whatever goes wrong, nothing half written is left."""

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from fewjoules.datasets.download import download
from fewjoules.datasets.fetch import locate
from fewjoules.datasets.sources import RemoteFile
from fewjoules.errors import InvalidInputError

BODY = bytes(range(256)) * 4096  # several chunks
OTHER = BODY[::-1]


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        name = self.path.rpartition("/")[2]
        if name.startswith("to-"):
            self.send_response(302)
            self.send_header("Location", {"to-http": "http://example.invalid/x", "to-good": "/good"}[name])
            self.end_headers()
        elif name == "absent":
            self.send_error(404)
        else:
            self.send_response(200)
            if name not in ("endless", "short-unannounced", "stalls"):
                self.send_header("Content-Length", str(len(BODY)))
            self.end_headers()
            self.write(name)

    def write(self, name):
        bodies = {"other": OTHER, "endless": BODY * 4}
        body = BODY[:-1000] if name.startswith("short") else bodies.get(name, BODY)
        try:
            self.wfile.write(body)
        except ConnectionError:
            self.close_connection = True
        if name == "stalls":
            self.server.released.wait(5.0)

    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.asked, server.released = [], threading.Event()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.released.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")


@pytest.fixture
def remote(server):
    def make(name="good", **changes):
        fields = {
            "name": name,
            "base_url": f"http://127.0.0.1:{server.server_port}/",
            "size_bytes": len(BODY),
            "digest": f"sha256:{hashlib.sha256(BODY).hexdigest()}",
            "folder": "set",
        }
        return RemoteFile(**{**fields, **changes})

    return make


def everything_in(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("algorithm", ["sha256", "md5"])
def test_a_good_file_arrives_whole(remote, tmp_path, algorithm):
    file = remote(digest=f"{algorithm}:{hashlib.new(algorithm, BODY).hexdigest()}")
    assert download(file, tmp_path / "new").read_bytes() == BODY
    assert everything_in(tmp_path) == ["good"]


def test_redirects_are_followed(remote, tmp_path):
    assert download(remote("to-good"), tmp_path).read_bytes() == BODY


def test_progress_grows_to_the_size(remote, tmp_path):
    seen = []
    download(remote(), tmp_path, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == len(BODY)
    assert len(seen) > 1


BAD = {
    "checksum": ("other", {}, f"must have the sha256 {hashlib.sha256(BODY).hexdigest()}, got "),
    "cut off": ("short", {}, f"must have {len(BODY)} bytes, got {len(BODY) - 1000}|cannot be downloaded"),
    "short": ("short-unannounced", {}, f"must have {len(BODY)} bytes, got {len(BODY) - 1000}"),
    "too large": ("endless", {}, f"must have {len(BODY)} bytes, got more"),
    "larger than known": ("good", {"size_bytes": 1000}, "must have 1000 bytes, got more"),
    "absent": ("absent", {}, r"cannot be downloaded \(status 404, Not Found\)"),
    "redirect to http": ("to-http", {}, "must start with https:// .* got 'http://example.invalid/x'"),
    "plain http": ("x", {"base_url": "http://example.invalid/"}, "must start with https://"),
    "a file": ("passwd", {"base_url": "file:///etc/"}, "must start with https://"),
    "nobody there": ("x", {"base_url": "http://127.0.0.1:1/"}, "cannot be downloaded"),
}


@pytest.mark.parametrize(("name", "changes", "message"), BAD.values(), ids=BAD)
def test_a_failed_download_leaves_nothing(remote, tmp_path, name, changes, message):
    with pytest.raises(InvalidInputError, match=message):
        download(remote(name, **changes), tmp_path)
    assert everything_in(tmp_path) == []


def test_a_silent_server_is_left(remote, tmp_path):
    with pytest.raises(InvalidInputError, match=r"cannot be downloaded \(.*timed out"):
        download(remote("stalls", size_bytes=len(BODY) + 1), tmp_path, timeout_seconds=0.2)
    assert everything_in(tmp_path) == []


def test_an_interrupted_download_leaves_nothing(remote, tmp_path):
    def interrupt(done_bytes):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(remote(), tmp_path, progress=interrupt)
    assert everything_in(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_named(remote, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInputError, match=r"file/set/good cannot be written"):
        download(remote(), tmp_path / "file" / "set")


def test_a_failed_download_keeps_the_file_that_was_there(remote, tmp_path):
    (tmp_path / "other").write_text("old")
    with pytest.raises(InvalidInputError):
        download(remote("other"), tmp_path)
    assert (tmp_path / "other").read_text() == "old"


def test_the_store_downloads_what_it_lacks_once(remote, server, tmp_path, monkeypatch):
    monkeypatch.setenv("FEWJOULES_DATA", str(tmp_path))
    sources = {"set": (remote("a"), remote("b"))}
    seen = []
    found = locate("set", sources=sources, progress=lambda done, total: seen.append((done, total)))
    assert found == {"a": tmp_path / "set" / "a", "b": tmp_path / "set" / "b"}
    assert seen == sorted(seen)
    assert seen[-1] == (2 * len(BODY), 2 * len(BODY))
    asked = len(server.asked)
    assert locate("set", sources=sources) == found
    assert len(server.asked) == asked


def test_a_failed_download_says_what_is_missing_and_why(remote, tmp_path, monkeypatch):
    monkeypatch.setenv("FEWJOULES_DATA", str(tmp_path))
    with pytest.raises(InvalidInputError, match=r"absent of set is missing: looked in .*--data-dir.*status 404"):
        locate("set", sources={"set": (remote("absent"),)})


def test_a_folder_that_the_user_names_is_only_read(remote, server, tmp_path):
    asked = len(server.asked)
    with pytest.raises(InvalidInputError, match=r"good of set is missing: looked in .*/set, "):
        locate("set", tmp_path, sources={"set": (remote(),)})
    assert len(server.asked) == asked
    assert list(tmp_path.iterdir()) == []
