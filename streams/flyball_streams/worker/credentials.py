"""Converts librdkafka's security settings for Faust, which uses another client."""

import ssl
from collections.abc import Mapping

import faust
from faust.types.auth import CredentialsT, SASLMechanism

from flyball_contracts.errors import ConfigError
from flyball_contracts.security.secret import with_secrets

MECHANISMS = {"PLAIN": SASLMechanism.PLAIN, "SCRAM-SHA-256": SASLMechanism.SCRAM_SHA_256}
MECHANISMS["SCRAM-SHA-512"] = SASLMechanism.SCRAM_SHA_512
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def credentials(client: Mapping[str, str]) -> CredentialsT | None:
    """Faust's credentials for ``kafka.client``, ``None`` for a broker without security.

    Raises :class:`ConfigError` for settings that Faust's client does not support.
    """
    client = with_secrets(client)
    protocol = client.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise ConfigError(f"kafka.client: security.protocol {protocol!r} is none of {', '.join(PROTOCOLS)}")
    context = _context(client) if protocol.endswith("SSL") else None
    if protocol.startswith("SASL"):
        mechanism = client.get("sasl.mechanism") or client.get("sasl.mechanisms") or "PLAIN"
        if mechanism.upper() not in MECHANISMS:
            raise ConfigError(
                f"kafka.client: the worker cannot use sasl.mechanism {mechanism!r}; use one of {', '.join(MECHANISMS)}"
            )
        return faust.SASLCredentials(
            username=client.get("sasl.username"),
            password=client.get("sasl.password"),
            mechanism=MECHANISMS[mechanism.upper()],
            ssl_context=context,
        )
    return None if context is None else faust.SSLCredentials(context)


def _context(client: Mapping[str, str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=client.get("ssl.ca.location"))
        if certificate := client.get("ssl.certificate.location"):
            context.load_cert_chain(certificate, client.get("ssl.key.location"), client.get("ssl.key.password"))
    except OSError as error:
        raise ConfigError(f"kafka.client: the certificates of ssl.*.location cannot be used: {error}") from error
    if client.get("ssl.endpoint.identification.algorithm") == "none":
        context.check_hostname = False
    return context
