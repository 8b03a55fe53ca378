"""The optional packages, by the extra of the wheel that brings them."""

import click

EXTRAS: dict[str, tuple[str, ...]] = {
    "worker": (
        "cramjam", "cryptography", "faust", "influxdb_client", "jax", "numba", "polars", "scipy", "statsmodels",
    ),
    "agent": ("pynvml", "prometheus_client", "urllib3"),
    "otlp": ("opentelemetry.proto", "google.protobuf"),
    "actuate": ("cryptography",),
    "keda": ("grpc", "google.protobuf"),
    "aws": ("boto3",),
    "azure": ("azure.identity", "azure.mgmt.compute"),
    "gcp": ("google.cloud.compute_v1",),
    "kubernetes": ("kubernetes",),
    "dashboard": ("nicegui", "fastapi", "starlette", "uvicorn"),
    "backtest": ("matplotlib",),
}  # fmt: skip
"""Imported names by extra, including those of indirect dependencies. The first extra that has a name is proposed."""


def missing(extra: str) -> list[str]:
    """Names of an extra that cannot be imported."""
    from flyball_collectors.export import installed

    return [name for name in EXTRAS[extra] if not installed(name)]


def need(*extras: str, what: str = "this command") -> None:
    """Raise :class:`click.ClickException` with the remedy where a package of an extra is missing.

    For commands that would otherwise import the package late: after they have waited for a broker, or computed.
    """
    lacking = {extra: names for extra in extras if (names := missing(extra))}
    if lacking:
        text = ", ".join(dict.fromkeys(name for names in lacking.values() for name in names))
        raise click.ClickException(f"{what} needs more packages: {remedy(*lacking)} (missing: {text})")


def remedy(*extras: str) -> str:
    """The command that installs extras."""
    return f"pip install 'flyball[{','.join(extras)}]'"


def extra_of(module: str) -> str | None:
    """The extra that brings a module that could not be imported; ``None`` if no extra does."""
    for extra, names in EXTRAS.items():
        for name in names:
            if f"{module}.".startswith(f"{name}.") or f"{name}.".startswith(f"{module}."):
                return extra
    return None
