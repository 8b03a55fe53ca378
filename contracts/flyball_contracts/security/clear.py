"""Connections to other machines without TLS."""

from urllib.parse import urlsplit

from flyball_contracts.config import KafkaConfig

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_PLAIN = ("plaintext", "sasl_plaintext")


def is_local(host: str | None) -> bool:
    """Whether a host is this machine."""
    return host in _LOOPBACK


def in_clear(url: str) -> bool:
    """Whether requests to this address leave the machine without TLS."""
    parts = urlsplit(url)
    return parts.scheme == "http" and not is_local(parts.hostname)


def plain_broker(kafka: KafkaConfig) -> str:
    """The first broker on another machine to which clients connect without TLS, empty if there is none."""
    if kafka.client.get("security.protocol", "plaintext").lower() not in _PLAIN:
        return ""
    brokers = (part.strip() for part in kafka.bootstrap.split(","))
    return next((one for one in brokers if one and not is_local(one.rpartition(":")[0].strip("[]"))), "")
