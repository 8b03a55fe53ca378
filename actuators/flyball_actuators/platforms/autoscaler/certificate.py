"""The TLS certificate of the servers that autoscalers connect to."""

from pathlib import Path

from flyball_contracts.config import ScalerConfig


def key_of(config: ScalerConfig) -> str:
    """Path of the private key: beside the certificate, with the ending .key, as in a TLS secret of Kubernetes."""
    return str(Path(config.certificate).with_suffix(".key"))
