"""Who gets the page: host names, origins, the token, and the headers that a browser obeys."""

import re
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.dashboard.serve import serving
from tests.rights.ground import certificate

from flyball_contracts.config import Config, DashboardConfig
from flyball_contracts.errors import ConfigError
from flyball_streams.dashboard.gate import COOKIE
from flyball_streams.dashboard.run import run_dashboard

TOKEN = "open sesame"
Answer = tuple[int, dict[str, str], str]


def ask(url: str, method: str = "GET", **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, method=method, headers=named)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, dict(answer.headers), answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read().decode()


def socket_status(url: str, origin: str) -> int:
    connection = HTTPConnection(urlsplit(url).netloc, timeout=20)
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
        "Origin": origin,
    }
    try:
        connection.request("GET", "/_nicegui_ws/socket.io/?EIO=4&transport=websocket", headers=upgrade)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.fixture(scope="module")
def free(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving("127.0.0.1:1", tmp_path_factory.mktemp("free") / "work") as url:
        yield url


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving("127.0.0.1:1", tmp_path_factory.mktemp("locked") / "work", TOKEN) as url:
        yield url


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "[", ""])
def test_another_host_is_refused(free: str, host: str) -> None:
    assert ask(free, Host=host)[0] == 400


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1234", "[::1]:8080"])
def test_names_of_this_machine_are_served(free: str, host: str) -> None:
    assert ask(free, Host=host)[0] == 200


def test_another_site_can_neither_post_nor_open_a_socket(free: str) -> None:
    assert socket_status(free, "http://evil.example") == 403
    assert socket_status(free, f"http://{urlsplit(free).netloc}") == 101
    assert ask(free, "POST", Origin="http://evil.example")[0] == 403
    assert ask(free, "POST", Origin="null")[0] == 403
    assert ask(free, "POST", Origin=f"http://{urlsplit(free).netloc}")[0] == 405


def test_headers_are_on_every_answer(free: str) -> None:
    for path in ("", "healthz", "absent"):
        headers = ask(free + path)[1]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"


def test_the_token_opens_the_page_and_nothing_else_does(locked: str) -> None:
    status, _, text = ask(locked)
    assert (status, len(text.splitlines())) == (401, 1)
    assert ask(f"{locked}?token=wrong")[0] == 401
    assert ask(locked, Authorization="Bearer wrong")[0] == 401
    assert ask(locked, Cookie=f"{COOKIE}={TOKEN}")[0] == 401
    assert ask(locked, Authorization=f"Bearer {TOKEN}")[0] == 200
    assert ask(f"{locked}healthz")[0] == 200
    status, headers, page = ask(f"{locked}workloads/chat?token={TOKEN.replace(' ', '%20')}")
    assert status == 200
    assert 'url=/workloads/chat"' in page
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert TOKEN not in cookie
    assert ask(locked, Cookie=cookie.partition(";")[0])[0] == 200


def test_a_page_runs_its_own_scripts_alone(free: str) -> None:
    policies: list[str] = []
    page = ""
    for look in ("", "?look=dark"):
        for _ in range(2):
            _, headers, page = ask(f"{free}{look}", Accept="text/html", Accept_Encoding="gzip")
            (nonce,) = re.findall(
                r"script-src 'self' 'nonce-([\w-]{22})' 'unsafe-eval';", headers["content-security-policy"]
            )
            scripts = re.findall(r"<script[^>]*>", page)
            assert scripts
            assert [one for one in scripts if f'nonce="{nonce}"' not in one] == []
            assert int(headers["content-length"]) == len(page.encode())
            policies.append(nonce)
    assert len(set(policies)) == 4
    (script,) = re.findall(r'src="/(_nicegui/[^"]*/nicegui\.js)"', page)
    with urllib.request.urlopen(urllib.request.Request(free + script, headers={"Accept-Encoding": "gzip"})) as answer:
        assert answer.headers["content-encoding"] == "gzip", "all else is compressed"


@pytest.mark.parametrize(("scheme", "is_secure"), [("https", True), ("http", False)])
def test_behind_a_proxy_with_tls_the_cookie_is_for_tls_alone(locked: str, scheme: str, is_secure: bool) -> None:
    cookie = ask(f"{locked}?token={TOKEN.replace(' ', '%20')}", X_Forwarded_Proto=scheme)[1]["set-cookie"]
    assert ("Secure" in cookie.split("; ")) == is_secure


def test_the_page_is_served_over_tls(tmp_path: Path) -> None:
    certificate(tmp_path, "localhost")
    trusted = ssl.create_default_context(cafile=str(tmp_path / "localhost.crt"))
    with serving("127.0.0.1:1", tmp_path / "work", TOKEN, str(tmp_path / "localhost.crt")) as url:
        named = url.replace("127.0.0.1", "localhost")
        assert named.startswith("https://")
        with urllib.request.urlopen(f"{named}?token={TOKEN.replace(' ', '%20')}", timeout=20, context=trusted) as page:
            cookie = page.headers["set-cookie"]
        assert "Secure" in cookie.split("; ")
        request = urllib.request.Request(named, headers={"Cookie": cookie.partition(";")[0]})
        with urllib.request.urlopen(request, timeout=20, context=trusted) as page:
            assert page.status == 200
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            urllib.request.urlopen(named, timeout=20)


def test_a_certificate_that_does_not_work_is_one_error(tmp_path: Path) -> None:
    certificate(tmp_path, "localhost")
    (tmp_path / "localhost.key").write_text("none")
    for path, why in ((tmp_path / "no.crt", "No such file or directory"), (tmp_path / "localhost.crt", "PEM")):
        config = Config(dashboard=DashboardConfig(port=0, certificate=str(path)))
        with pytest.raises(ConfigError, match=rf"dashboard\.certificate: {path} and .*\.key cannot be used: .*{why}"):
            run_dashboard(config, stop=threading.Event())


def test_a_page_for_others_needs_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLYBALL_DASHBOARD_TOKEN", raising=False)
    config = Config(dashboard=DashboardConfig(host="0.0.0.0", port=0))
    with pytest.raises(ConfigError, match="set the environment variable FLYBALL_DASHBOARD_TOKEN"):
        run_dashboard(config, stop=threading.Event())
