"""Converts configuration and discovered replicas to scrape targets."""

from typing import NamedTuple, cast, get_args
from urllib.parse import urlsplit

from flyball_collectors.workload.discovery.base import DiscoveredReplica
from flyball_collectors.workload.scraping.meter import Alternatives, Work
from flyball_collectors.workload.scraping.scraper import Target
from flyball_collectors.workload.scraping.token import token_of
from flyball_collectors.workload.servers import SERVERS
from flyball_contracts.config.workload import ServerName, TargetSettings
from flyball_contracts.errors import ConfigError

_DEFAULT_PATH = "/metrics"


def configured(settings: TargetSettings, replica: str, where: str) -> Target:
    """Target of the configuration; ``where`` is its place there.

    Raises :class:`ConfigError` for series that are missing, superfluous or invalid.
    """
    server = SERVERS[cast(ServerName, settings.server)]
    if settings.server == "generic" and settings.series is None:
        known = ", ".join(name for name in SERVERS if name != "generic")
        raise ConfigError(
            f"{where}.series: missing; name the series of a generic server, or set server to one of {known}"
        )
    if settings.server != "generic" and settings.series is not None:
        raise ConfigError(
            f"{where}.series: those of {settings.server} are known; leave it out, or set server to generic"
        )
    base_url, path = split_url(settings.url)
    health = settings.health or server.health
    return Target(
        workload=settings.workload,
        replica=replica,
        base_url=base_url,
        path=path,
        health_url=health if health.startswith("http") or not health else base_url + health,
        series=Alternatives(settings.series or server.series, f"{where}.series"),
        work=Work() if settings.token_weights is None else Work("tokens", *settings.token_weights),
        match=tuple(settings.match.items()),
        token=token_of(settings.token_file),
        ca_file=settings.ca_file,
    )


class _Terms(NamedTuple):
    """A runtime's names of the settings."""

    unit: str
    page: str
    server: str
    work: str


_TERMS = {
    "kubernetes": _Terms(
        unit="pod",
        page="prometheus.io/port, and prometheus.io/scheme to http or https",
        server="flyball.dev/server",
        work="flyball.dev/work",
    ),
    "slurm": _Terms(
        unit="job",
        page="FLYBALL_METRICS_PORT to a port of this node",
        server="FLYBALL_SERVER",
        work="FLYBALL_WORK",
    ),
}


def discovered(found: DiscoveredReplica) -> Target:
    """Target of a pod or a job.

    Raises :class:`ConfigError` for unknown annotations or variables, and for those without a port.
    """
    terms, labels = _TERMS[found.runtime], dict(found.labels)
    who = f"{terms.unit} {'/'.join(filter(None, (labels.get('namespace'), labels[terms.unit])))}"
    if not found.url:
        raise ConfigError(f"{who}: has no page; set {terms.page}")
    known = [name for name in get_args(ServerName) if name != "generic"]
    if found.server not in known:
        raise ConfigError(f"{who}: {terms.server} is {found.server!r}; set one of {', '.join(known)}")
    if found.work not in ("requests", "tokens"):
        raise ConfigError(f"{who}: {terms.work} is {found.work!r}; set requests or tokens")
    server = SERVERS[cast(ServerName, found.server)]
    series = Alternatives(server.series, who)
    base_url, path = split_url(found.url)
    return Target(
        workload=found.workload,
        replica=found.replica,
        base_url=base_url,
        path=path,
        health_url=base_url + server.health if server.health else "",
        series=series,
        work=Work(unit="tokens" if found.work == "tokens" else "requests"),
        match=((series.model, found.model),) if found.model and series.model else (),
        token=token_of(""),
        ca_file="",
    )


def split_url(url: str) -> tuple[str, str]:
    """Server and path of a page: ``http://host:port`` or ``unix:///socket``, and ``/metrics`` by default."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        path, colon, page = parts.path.rpartition(":/")
        return (f"unix://{path}", f"/{page}") if colon else (f"unix://{parts.path}", _DEFAULT_PATH)
    return f"{parts.scheme}://{parts.netloc}", parts.path if parts.path.strip("/") else _DEFAULT_PATH
