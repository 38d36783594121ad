"""Only this machine's browser with the token may ask, and only for files below the folder."""

import pytest

from fewjoules.errors import InvalidInputError
from fewjoules.studio.access import Access, Workspace
from tests.studio.client import with_studio

PAGES = ["/plan", "/runs", "/plotly.js", "/static/base.js"]


def statuses(tmp_path, requests):
    """Return the status of each request, given as method, address and headers without those of a browser."""

    async def ask(studio):
        found = []
        for method, address, headers in requests(studio):
            response = await studio.client.request(method, address, headers=headers, allow_redirects=False)
            found.append(response.status)
        return found

    return with_studio(tmp_path, ask)


@pytest.mark.parametrize("address", PAGES)
def test_every_address_needs_the_token(tmp_path, address):
    wrong = {"Cookie": "fewjoules-studio-1=x"}
    asked = statuses(tmp_path, lambda studio: [("GET", address, {}), ("GET", address, wrong)])
    assert asked == [403, 403]
    assert statuses(tmp_path, lambda studio: [("GET", address, studio.headers)]) == [200]


def test_a_wrong_token_in_the_address_is_refused(tmp_path):
    assert statuses(tmp_path, lambda studio: [("GET", "/plan?token=x", {}), ("GET", "/?token=", {})]) == [403, 403]


def opened(tmp_path, address):
    """Return status, text and cookie of what an address made from the access answers, asked for twice."""

    async def ask(studio):
        made = address(studio.access)
        answers = [await studio.client.get(made, allow_redirects=False) for _ in range(2)]
        return [(one.status, await one.text(), one.headers.get("Set-Cookie", "")) for one in answers], studio.access

    return with_studio(tmp_path, ask)


def test_the_token_in_the_address_becomes_a_cookie_that_scripts_and_other_sites_cannot_use(tmp_path):
    answers, access = opened(tmp_path, lambda access: f"/plan?file=a%20%22b.toml&token={access.token}")
    for status, text, cookie in answers:
        assert status == 200
        assert 'url=/plan?file=a+%22b.toml"' in text
        assert access.token not in text
        assert access.token in cookie
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie


def test_a_browser_is_started_with_an_address_that_opens_the_studio_once(tmp_path):
    answers, access = opened(tmp_path, lambda access: "/?" + access.address_for_once().partition("/?")[2])
    assert [status for status, _, _ in answers] == [200, 403]
    assert access.token in answers[0][2]
    assert answers[1][2] == ""


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:80", ""])
def test_another_host_name_is_refused_although_it_points_here(tmp_path, host):
    asked = statuses(tmp_path, lambda studio: [("GET", "/plan", studio.headers | {"Host": host})])
    assert asked == [403]


def test_localhost_is_this_machine_too(tmp_path):
    host = lambda studio: {"Host": f"localhost:{studio.access.port}"}  # noqa: E731
    assert statuses(tmp_path, lambda studio: [("GET", "/plan", studio.headers | host(studio))]) == [200]


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", None])
def test_a_page_of_another_origin_cannot_post(tmp_path, origin):
    def requests(studio):
        headers = {"Cookie": studio.headers["Cookie"]} | ({} if origin is None else {"Origin": origin})
        return [("POST", "/api/plan", headers)]

    assert statuses(tmp_path, requests) == [403]


def test_answers_carry_the_headers_that_keep_scripts_out(tmp_path):
    async def ask(studio):
        return [(await studio.get(address)).headers for address in [*PAGES, "/nowhere"]]

    for headers in with_studio(tmp_path, ask):
        policy = headers["Content-Security-Policy"]
        assert "script-src 'self';" in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"


def test_tokens_are_long_and_differ():
    tokens = {Access(1).token for _ in range(20)}
    assert len(tokens) == 20
    assert min(map(len, tokens)) >= 32


@pytest.mark.parametrize("name", ["..", "../x", "/etc/passwd", "a/../../x", "link", "link/secret", "nul\0l"])
def test_files_outside_the_folder_are_refused(tmp_path, name):
    outside = tmp_path / "outside"
    folder = tmp_path / "folder"
    for one in (outside, folder):
        one.mkdir()
    (outside / "secret").write_text("x")
    (folder / "link").symlink_to(outside)
    with pytest.raises(InvalidInputError, match="below the folder of the studio"):
        Workspace.of(folder).path(name)


def test_files_below_the_folder_are_found_by_links_within_it(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").symlink_to(tmp_path / "a")
    workspace = Workspace.of(tmp_path)
    assert workspace.path("b/x.toml") == tmp_path.resolve() / "a" / "x.toml"
    assert workspace.name(workspace.path("b/x.toml")) == "a/x.toml"


@pytest.mark.parametrize("address", ["/static/../server.py", "/static/%2e%2e/server.py", "/static//etc/passwd"])
def test_static_files_are_those_of_the_studio(tmp_path, address):
    async def ask(studio):
        return (await studio.get(address)).status

    assert with_studio(tmp_path, ask) in (403, 404)
