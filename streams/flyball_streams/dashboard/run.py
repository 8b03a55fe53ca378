"""Serves the dashboard until it is stopped."""

import logging
import os
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from flyball_contracts.config import Config
from flyball_contracts.errors import ConfigError
from flyball_streams.dashboard.feed import Feed
from flyball_streams.dashboard.gate import Gate, token_of
from flyball_streams.dashboard.state.fleet import FleetView

_LOG = logging.getLogger(__name__)
_CLOSE_S = 5
_CHECK_S = 0.2


class _Server(uvicorn.Server):
    """A server that leaves signal handling to its caller."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()


def run_dashboard(config: Config, *, stop: threading.Event, ready: Callable[[str], None] | None = None) -> None:
    """Serve the live page at ``config.dashboard`` until ``stop`` is set; at most once per process.

    ``ready`` is called with the page's URL once it responds; port 0 means a free one. ``GET /healthz`` returns the
    state as JSON. If the broker is unreachable, it is retried. Raises :class:`ConfigError` when the address is in use,
    when it needs a token and has none, and for a certificate that does not work.
    """
    token = token_of(config.dashboard)
    certificate, key = _certificate(config.dashboard.certificate)
    listener = _listen(config.dashboard.host, config.dashboard.port)
    feed = Feed(FleetView(), config.kafka)
    with tempfile.TemporaryDirectory(prefix="flyball-dashboard-") as scratch:
        os.environ["NICEGUI_STORAGE_PATH"] = scratch  # read on import; never the working directory
        server = _Server(
            uvicorn.Config(
                Gate(_application(feed, config.actuator.mode), config.dashboard, token),
                log_level="warning",
                timeout_graceful_shutdown=_CLOSE_S,
                ws_ping_interval=None,
                ssl_certfile=certificate,
                ssl_keyfile=key,
            )
        )
        reader = threading.Thread(target=feed.run, args=(stop,), name="dashboard-feed", daemon=True)
        web = threading.Thread(target=server.run, args=([listener],), name="dashboard-web", daemon=True)
        reader.start()
        web.start()
        announced = False
        while web.is_alive() and reader.is_alive() and not stop.wait(_CHECK_S):
            if server.started and not announced:
                announced = True
                url = _url("https" if certificate else "http", config.dashboard.host, listener)
                _LOG.info("dashboard at %s", url)
                if ready is not None:
                    ready(url)
        stopped, reads = stop.is_set(), reader.is_alive()
        stop.set()
        server.should_exit = True
        web.join(2 * _CLOSE_S)
        reader.join(2 * _CLOSE_S)
        listener.close()
    if not stopped:
        raise RuntimeError(f"the dashboard's {'web server' if reads else 'reader'} ended on its own; its log says why")


def _application(feed: Feed, mode: str) -> FastAPI:
    from nicegui import ui  # here, because NiceGUI fixes its storage folder when it is imported

    from flyball_streams.dashboard.page import FAVICON, add_pages

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/healthz")
    def health() -> dict[str, Any]:  # pyright: ignore[reportUnusedFunction]
        link = feed.link
        with feed.lock:
            return {
                "status": "ok" if link.connected else "degraded",
                "connected": link.connected,
                "error": link.error,
                "bootstrap": link.bootstrap,
                "partitions": link.partitions,
                "lag": link.lag,
                "applied": feed.view.applied,
                "undecodable": feed.view.undecodable,
                "dead_letters": feed.view.dead_letters,
                "late": feed.view.late,
            }

    add_pages(feed, mode)
    ui.run_with(  # pyright: ignore[reportUnknownMemberType]
        app, title="Flyball", dark=None, tailwind=False, favicon=FAVICON, show_welcome_message=False
    )
    return app


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise ConfigError(
            f"dashboard: cannot listen on {host}:{port} ({(error.strerror or '').partition(' (')[0]}); "
            "choose another dashboard.port, or 0 for a free one"
        ) from error


def _certificate(path: str) -> tuple[str | None, str | None]:
    """A PEM certificate and the key beside it, or ``None`` twice; raises :class:`ConfigError` if they do not work."""
    if not path:
        return None, None
    key = str(Path(path).with_suffix(".key"))
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(path, key)
    except OSError as error:  # an SSLError is an OSError
        raise ConfigError(
            f"dashboard.certificate: {path} and {key} cannot be used: {error.strerror or error}; name a PEM file with "
            "its key beside it, in a file that ends in .key"
        ) from error
    return path, key


def _url(scheme: str, host: str, listener: socket.socket) -> str:
    port = listener.getsockname()[1]
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "::1": "[::1]"}.get(host, host)
    return f"{scheme}://{name}:{port}/"
