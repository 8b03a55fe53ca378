"""Parameters of the sinks: their configuration, and constants that only tests vary."""

from flyball_contracts.config import InfluxConfig


class InfluxParameters(InfluxConfig, frozen=True):
    """The server, and the environment variable that holds its token."""

    token_env: str = "INFLUX_TOKEN"
