"""Who may ask the studio, and for which files: a token, this machine's names only, and one folder."""

import hmac
import html
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from fewjoules.errors import InvalidInputError, shown

ADDRESS = "127.0.0.1"
READING = ("GET", "HEAD")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
NOT_ALLOWED = "Open the address that fewjoules studio printed when it started; it holds the token that this page needs."


@dataclass(frozen=True, slots=True)
class Access:
    """The token of one studio and the port it listens on.

    ``tickets`` open the studio once each: other users of the machine see the address that a browser is started with.
    """

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    tickets: set[str] = field(default_factory=set)

    @property
    def hosts(self) -> frozenset[str]:
        """Names by which a browser on this machine may call the studio; others may point here by DNS rebinding."""
        return frozenset({f"{ADDRESS}:{self.port}", f"localhost:{self.port}"})

    @property
    def cookie(self) -> str:
        """Name of the cookie; browsers share cookies between ports, so it names the port."""
        return f"fewjoules-studio-{self.port}"

    @property
    def address(self) -> str:
        """Address that opens the studio."""
        return f"http://{ADDRESS}:{self.port}/?token={self.token}"

    def address_for_once(self) -> str:
        """Return an address that opens the studio a single time."""
        ticket = secrets.token_urlsafe(24)
        self.tickets.add(ticket)
        return f"http://{ADDRESS}:{self.port}/?token={ticket}"

    def opens(self, given: str) -> bool:
        """Whether the token of an address is right; a ticket is so only once."""
        if given in self.tickets:
            self.tickets.discard(given)
            return True
        return self.admits(given)

    def admits(self, given: str | None) -> bool:
        """Whether a token is the right one, told in a time that does not depend on it."""
        return given is not None and hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode())


def gate(access: Access) -> Middleware:
    """Return the middleware that lets in requests of this machine's browser with the token, and no other."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        refused = _refused(request, access)
        if refused is not None:
            return _closed(web.Response(status=403, text=refused))
        given = request.query.get("token")
        if given is not None and request.method in READING:
            if not access.opens(given):
                return _closed(web.Response(status=403, text=NOT_ALLOWED))
            return _closed(_with_cookie(request, access))
        if not access.admits(request.cookies.get(access.cookie)):
            return _closed(web.Response(status=403, text=NOT_ALLOWED))
        return await handler(request)

    return check


async def protect(request: web.Request, response: web.StreamResponse) -> None:
    """Add to every answer the headers that keep foreign scripts and pages out."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers.setdefault("Cache-Control", "no-cache")


def _refused(request: web.Request, access: Access) -> str | None:
    """Say why a request does not come from a page of this studio; None if it may."""
    if request.headers.get("Host", "").lower() not in access.hosts:
        return f"The studio answers to {ADDRESS} and localhost only."
    origin = request.headers.get("Origin")
    own = {f"http://{host}" for host in access.hosts}
    if (origin is not None or request.method not in READING) and origin not in own:
        return "The studio answers to its own pages only."
    return None


def _with_cookie(request: web.Request, access: Access) -> web.Response:
    """Move the token from the address to a cookie, so that shared addresses do not hold it.

    The page goes on by itself: after a redirect, a browser that came from another site would not send the cookie.
    """
    rest = {name: value for name, value in request.query.items() if name != "token"}
    target = html.escape(str(request.rel_url.with_query(rest)))
    head = '<!doctype html><title>FewJoules studio</title><link rel="icon" href="data:,">'
    text = f'{head}<meta http-equiv="refresh" content="0; url={target}">'
    response = web.Response(text=text, content_type="text/html")
    response.set_cookie(access.cookie, access.token, httponly=True, samesite="Strict", path="/")
    return response


def _closed(response: web.Response) -> web.Response:
    response.headers["Cache-Control"] = "no-store"
    return response


@dataclass(frozen=True, slots=True)
class Workspace:
    """The folder below which files may be opened; ``root`` is resolved."""

    root: Path

    @classmethod
    def of(cls, folder: str | Path) -> "Workspace":
        """Return the workspace of a folder that exists."""
        root = Path(folder).resolve()
        if not root.is_dir():
            raise InvalidInputError(f"{folder}: must be a folder that exists")
        return cls(root)

    def path(self, name: str) -> Path:
        """Return the path that a name relative to the root stands for; refuse one outside, also by a link."""
        try:
            path = (self.root / name).resolve()
        except (OSError, ValueError, RuntimeError) as error:  # links in a circle, or a null character
            raise InvalidInputError(f"{shown(name)} is no path below the folder of the studio") from error
        if not path.is_relative_to(self.root):
            raise InvalidInputError(f"files must lie below the folder of the studio, got {shown(name)}")
        return path

    def name(self, path: Path) -> str:
        """Return the name of a path below the root, as addresses hold it."""
        return path.relative_to(self.root).as_posix()
