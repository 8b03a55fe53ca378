"""The client of the feeds over TLS: whom it trusts."""

from pathlib import Path

import pytest
from tests.collectors.workload.workload_server import certificate, page_server

from flyball_collectors.feeds import FeedError
from flyball_collectors.feeds.client import Client


def test_a_certificate_is_trusted_if_its_ca_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context, ca_file = certificate(tmp_path)
    with page_server(tls=context) as server:
        server.respond("/v3", "by tls")
        client = Client(server.url, timeout_s=10.0)
        with pytest.raises(FeedError, match=r"/v3: its certificate is not trusted; name a CA by SSL_CERT_FILE"):
            client.get("/v3", {}, {}, now_ns=0)
        assert not server.requests
        monkeypatch.setenv("SSL_CERT_FILE", str(ca_file))
        assert client.get("/v3", {}, {}, now_ns=0) == b"by tls"
