import ssl
from pathlib import Path
from typing import Any

import pytest
from faust.types.auth import AuthProtocol

from flyball_contracts.errors import ConfigError
from flyball_streams.worker.credentials import credentials


def test_without_security_there_are_none() -> None:
    assert credentials({}) is None
    assert credentials({"security.protocol": "plaintext", "socket.timeout.ms": "1"}) is None


def test_tls() -> None:
    found: Any = credentials({"security.protocol": "SSL"})
    assert found.protocol == AuthProtocol.SSL
    assert found.context.verify_mode == ssl.CERT_REQUIRED
    assert found.context.check_hostname


@pytest.mark.parametrize(("protocol", "expected"), [("SASL_PLAINTEXT", None), ("sasl_ssl", ssl.CERT_REQUIRED)])
def test_sasl(protocol: str, expected: ssl.VerifyMode | None, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("p\n")
    client = {"security.protocol": protocol, "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "u"}
    found: Any = credentials({**client, "sasl.password": f"file:{tmp_path}/password"})
    assert found.protocol == AuthProtocol[protocol.upper()]
    assert (found.username, found.password, found.mechanism.value) == ("u", "p", "SCRAM-SHA-512")
    assert (found.ssl_context and found.ssl_context.verify_mode) == expected


@pytest.mark.parametrize(
    "client",
    [
        {"security.protocol": "KERBEROS"},
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"},
        {"security.protocol": "SSL", "ssl.ca.location": "/nowhere/ca.pem"},
    ],
)
def test_what_faust_cannot_do_is_published(client: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"kafka\.client"):
        credentials(client)
