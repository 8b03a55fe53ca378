"""Secrets come from files and the environment; none stands in the configuration, and no error shows one."""

from pathlib import Path

import pytest

from flyball_contracts.config import KafkaConfig
from flyball_contracts.errors import ConfigError
from flyball_contracts.security.secret import secret, secret_if_given, with_secrets

SECRETS = (
    "sasl.password", "ssl.key.password", "ssl.keystore.password", "ssl.key.pem", "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.assertion.private.key.pem",
)  # fmt: skip


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_of_a_client_is_a_file(name: str, tmp_path: Path) -> None:
    for inline in ("hunter2", "file:relative", ""):
        with pytest.raises(ValueError, match=f"client: {name} stands here .* write {name}: file:/PATH") as caught:
            KafkaConfig(client={name: inline})
        assert "hunter2" not in str(caught.value)
    file = tmp_path / "secret"
    client = KafkaConfig(client={name: f"file:{file}", "ssl.ca.location": "file:/a.pem"}).client
    with pytest.raises(ConfigError, match=rf"kafka\.client: {name}: .*secret: No such file or directory; put the"):
        with_secrets(client)
    file.write_bytes(b"\n")
    with pytest.raises(ConfigError, match=rf"kafka\.client: {name}: .*secret: it is empty"):
        with_secrets(client)
    file.write_bytes(b" hunter2\r\n")
    assert with_secrets(client) == {name: " hunter2", "ssl.ca.location": "file:/a.pem"}


def test_a_variable_may_name_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from the file\n")
    assert secret({"TOKEN": "given"}, "TOKEN", "page") == "given"
    assert secret({"TOKEN_FILE": str(file)}, "TOKEN", "page") == "from the file"
    assert secret({"TOKEN": "given", "TOKEN_FILE": str(file)}, "TOKEN", "page") == "given"
    assert secret_if_given({}, "TOKEN", "page") == ""
    with pytest.raises(ConfigError, match=r"page: the environment variable TOKEN is not set; .* that TOKEN_FILE names"):
        secret({}, "TOKEN", "page")
    with pytest.raises(ConfigError, match="page: TOKEN_FILE: /nowhere/token: No such file or directory"):
        secret({"TOKEN_FILE": "/nowhere/token"}, "TOKEN", "page")
