"""Fills the ``WORKLOAD`` layout: one row for each replica with a report."""

import logging
import os
import time
from collections.abc import Callable, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_collectors.base import Collector, KeyedReading, Parts
from flyball_collectors.parameters import WorkloadsParameters
from flyball_collectors.workload.discovery.base import DiscoveredReplica, Watch
from flyball_collectors.workload.discovery.kubernetes import PodWatch
from flyball_collectors.workload.discovery.slurm import JobWatch
from flyball_collectors.workload.discovery.targets import configured, discovered
from flyball_collectors.workload.names import Senders, WorkloadNames, claimant_of
from flyball_collectors.workload.scraping.meter import ServerReading
from flyball_collectors.workload.scraping.poller import Limits
from flyball_collectors.workload.scraping.scraper import Scraper, Target
from flyball_collectors.workload.training.follower import Follower, compile_pattern
from flyball_collectors.workload.training.job import Job, Progress
from flyball_collectors.workload.training.listen import LineSocket
from flyball_contracts.config.attribution import AttributionConfig
from flyball_contracts.config.constants import with_constants
from flyball_contracts.config.workload import WorkloadsConfig
from flyball_contracts.errors import ConfigError
from flyball_contracts.metrics import SERVING, WORKLOAD
from flyball_contracts.records import Allocation
from flyball_contracts.records.inventory import CordonState

_LOG = logging.getLogger(__name__)
_MOST_NAMED = 256  # replicas that lines may name: anyone on the host can send lines

Key = tuple[str, str]
Row = NDArray[np.float32]


def _columns(*keys: str) -> list[int]:
    return [WORKLOAD.column(f"flyball.workload.{key}") for key in keys]


_READING = _columns(
    "request.rate",
    "work.rate",
    "request.active",
    "request.queued",
    "token.rate{kind=input}",
    "token.rate{kind=output}",
    "latency{stat=mean}",
    "latency{stat=p99}",
    "errors",
    "ready",
)
_SERVING = slice(len(_READING), len(_READING) + len(SERVING))  # the rest of a reading, in the order of the layout
_PROGRESS = _columns("work.rate", "step.time", "progress", "loss", "steps")
_READY = WORKLOAD.column("flyball.workload.ready")
_UNREAD = {True: "", False: "what it announces does not say how to scrape it; see the log"}
_NO_THREAD = "no thread is to be had for it: raise the limit of the agent's or the node's tasks (TasksMax, pids.max)"


class _Log(NamedTuple):
    follower: Follower
    job: Job


class WorkloadCollector(Collector):
    """Configured or discovered replicas, and training jobs that send reports.

    ``node`` names replicas without a name of their own, ``attribution`` has the rules that bind names. Raises
    :class:`ConfigError` for invalid settings.
    """

    name = "workload"

    def __init__(
        self,
        section: WorkloadsConfig,
        node: str,
        *,
        root: Path = Path("/"),
        attribution: AttributionConfig | None = None,
        environ: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        config = self._config = with_constants(WorkloadsParameters, section)
        self._node = node
        self._clock = clock
        attribution = attribution or AttributionConfig()
        self._names, self._senders = WorkloadNames(node, attribution.rules), Senders(root, attribution)
        self._limits = Limits(config.period_s, config.timeout_s, config.page_bytes)
        self._allocations: dict[Key, Allocation] = {}
        targets: dict[Key, Target] = {}
        for place, one in enumerate(config.targets):
            if not one.workload:  # a gateway
                continue
            where = f"agent.workloads.targets[{place}]"
            key = (one.workload, one.replica or node)
            if key in targets:
                raise ConfigError(
                    f"{where}: workload {key[0]!r} has a replica {key[1]!r} already; name another replica"
                )
            targets[key] = configured(one, key[1], where)
            self._allocations[key] = Allocation(workload=key[0], replica=key[1], devices=one.devices)
        logs: dict[Key, _Log] = {}
        for place, log in enumerate(config.logs):
            pattern = compile_pattern(log.pattern, f"agent.workloads.logs[{place}].pattern")
            key = (log.workload, log.replica or node)
            logs[key] = _Log(Follower(Path(log.path), pattern), Job(config.silent_s, log.steps))
            self._allocations.setdefault(key, Allocation(workload=key[0], replica=key[1], devices=log.devices))
        self._logs = logs
        self._jobs: dict[Key, Job] = {}
        self._refused = 0
        self._complaints: set[str] = set()
        self._followed: list[tuple[DiscoveredReplica, ...]] = []
        self._there: dict[DiscoveredReplica, None] = {}
        self._found: dict[DiscoveredReplica, Scraper | None] = {}
        self._scrapers: dict[Key, Scraper] = {}
        self._socket = LineSocket(config.listen) if config.listen else None
        self._watches: dict[str, Watch] = {}
        try:
            if "kubernetes" in config.discover:
                self._watches["kubernetes"] = PodWatch(config.kubernetes, node, config.timeout_s, environ)
            if "slurm" in config.discover:
                self._watches["slurm"] = JobWatch(config.slurm, node, root)
            self._scrapers = {key: Scraper(target, self._limits) for key, target in targets.items()}
            for watch in self._watches.values():  # without its replicas an inventory would say that they are gone
                watch.wait(config.timeout_s)
        except BaseException:
            self.close()
            raise

    @property
    def errors(self) -> int:
        """Number of failed scrapes, failed discoveries, and rejected lines."""
        refused = self._refused + (self._socket.refused if self._socket else 0)
        looks = sum(watch.errors for watch in self._watches.values())
        return sum(one.errors for one in self._all_scrapers()) + looks + refused

    def problems(self) -> dict[str, str | None]:
        """Queried pages and their problems: empty without one, ``None`` before the first response."""
        problems = {f"{workload}/{replica}": one.problem for (workload, replica), one in self._scrapers.items()}
        for found, scraper in self._found.items():
            problems[f"{found.workload}/{found.replica}"] = (
                scraper.problem if scraper is not None else _UNREAD[found.pending]
            )
        for found in self._there.keys() - self._found.keys():
            problems[f"{found.workload}/{found.replica}"] = _NO_THREAD
        for key, log in self._logs.items():
            problems["/".join(key)] = log.follower.problem()
        return problems | {name: watch.problem for name, watch in self._watches.items()}

    def read(self, now_ns: int, period_ns: int) -> list[KeyedReading]:
        """The last report of each replica; requests nothing now."""
        now_s = self._clock()
        for watch in self._watches.values():
            watch.hurry()
        if "kubernetes" in self._watches and self._watches["kubernetes"].homes is not self._names.homes:
            self._names.homes = self._watches["kubernetes"].homes
            self._followed = []  # under the present names
            bound = self._names.homes.names
            self._jobs = {key: job for key, job in self._jobs.items() if key[0] not in bound}
        self._follow([watch.found for watch in self._watches.values()])
        self._listen(now_s)
        known = {key: one.take() for key, one in self._scrapers.items()}
        for found, scraper in self._found.items():
            unread = ServerReading(ready=0.0) if found.pending else ServerReading()
            known.setdefault((found.workload, found.replica), scraper.take() if scraper is not None else unread)
        rows = {key: _row_of(reading) for key, reading in known.items()}
        for key, log in self._logs.items():
            log.job.update(log.follower.take(), now_s)
            _add_progress(rows, key, log.job.take(now_s))
        for key, job in self._jobs.items():
            _add_progress(rows, key, job.take(now_s))
        serving = {key: np.array(reading[_SERVING], np.float32) for key, reading in known.items()}
        served = any(np.isfinite(row).any() for row in serving.values())
        readings = [KeyedReading(WORKLOAD.schema, rows)] if rows else []
        return [*readings, KeyedReading(SERVING.schema, serving)] if served else readings

    def parts(self) -> Parts:
        """An allocation for each replica that is configured, discovered or recently named by lines."""
        known = dict(self._allocations)
        for found in self._there:
            known[found.workload, found.replica] = Allocation(
                workload=found.workload, replica=found.replica, runtime=found.runtime, labels=dict(found.labels)
            )
        for workload, replica in self._jobs:
            known.setdefault((workload, replica), Allocation(workload=workload, replica=replica))
        nodes = [watch.node for watch in self._watches.values()]
        cordons: list[CordonState] = [node.cordon for node in nodes if node.cordon]
        return Parts(
            allocations=tuple(known.values()),
            schedulable=all(node.schedulable for node in nodes),
            cordon=cordons[0] if cordons else "",
        )

    def close(self) -> None:
        """End all threads and close all files."""
        for watch in self._watches.values():
            watch.close()
        scrapers = self._all_scrapers()
        for scraper in scrapers:
            scraper.stop()
        for scraper in scrapers:
            scraper.close()
        for log in self._logs.values():
            log.follower.close()
        if self._socket is not None:
            self._socket.close()
        self._scrapers, self._found, self._logs, self._socket, self._watches = {}, {}, {}, None, {}
        self._there = {}

    def _listen(self, now_s: float) -> None:
        lines = self._socket.take() if self._socket is not None else []
        ended = self._socket.senders.ended if self._socket is not None else frozenset[int]
        senders = self._senders.find((line.pid for line in lines), ended)
        for line in lines:
            sender = senders.get(line.pid)
            if problem := self._names.problem(line.workload, sender):
                self._refuse(f"a line from {sender or 'an unknown process'}", problem)
                continue
            key = (line.workload, line.replica or self._node)
            job = self._jobs.get(key)
            if job is None:
                if len(self._jobs) >= _MOST_NAMED:
                    self._refused += 1
                    continue
                job = self._jobs[key] = Job(self._config.silent_s)
            job.update(line.fields, now_s)
        for key in [key for key, job in self._jobs.items() if job.silent(now_s)]:
            del self._jobs[key]

    def _refuse(self, who: str, problem: str) -> None:
        self._refused += 1
        if problem not in self._complaints and len(self._complaints) < _MOST_NAMED:
            self._complaints.add(problem)
            _LOG.warning("%s: %s; it is not counted until then", who, problem)

    def _all_scrapers(self) -> list[Scraper]:
        return [*self._scrapers.values(), *(one for one in self._found.values() if one is not None)]

    def _follow(self, answers: list[tuple[DiscoveredReplica, ...]]) -> None:
        """Scrape exactly the current replicas; one that cannot be scraped for want of a thread is tried again."""
        if any(new is not old for new, old in zip_longest(answers, self._followed)):
            self._followed = answers
            self._replace(answers)
        if len(self._found) == len(self._there):
            return
        for found in [one for one in self._there if one not in self._found]:
            try:
                self._found[found] = self._open(found)
            except RuntimeError as error:  # the limit of processes of the node or of the agent
                self._refuse(f"{found.workload}/{found.replica}", f"{error}; {_NO_THREAD}")
                return

    def _replace(self, answers: list[tuple[DiscoveredReplica, ...]]) -> None:
        there: dict[DiscoveredReplica, None] = {}
        taken: set[Key] = set()
        for found in sorted(found for answer in answers for found in answer):  # a server lists them in any order
            who = claimant_of(found)
            if problem := self._names.problem(found.workload, who):
                _LOG.warning("%s: %s; it is not counted until then", who, problem)
                continue
            if (found.workload, found.replica) in taken:  # in two namespaces, or as two jobs name themselves
                found = found._replace(replica=f"{found.replica}.{who.owner.unit}")
            taken.add((found.workload, found.replica))
            there[found] = None
        for gone in self._found.keys() - there.keys():
            scraper = self._found.pop(gone)
            if scraper is not None:
                scraper.stop()
        self._there = there

    def _open(self, found: DiscoveredReplica) -> Scraper | None:
        if found.pending:
            return None
        try:
            return Scraper(discovered(found), self._limits)
        except ConfigError as error:
            _LOG.warning("%s; it is not scraped", error)
            return None


def _row_of(reading: ServerReading) -> Row:
    row = np.full(len(WORKLOAD), np.nan, np.float32)
    row[_READING] = reading[: len(_READING)]
    return row


def _add_progress(rows: dict[Key, Row], key: Key, progress: Progress | None) -> None:
    """Add a training job's report to its row.

    The job is ready while it sends reports, unless a server reports otherwise.
    """
    row = rows.setdefault(key, np.full(len(WORKLOAD), np.nan, np.float32))
    if progress is not None:
        values = np.array(progress, np.float32)
        row[_PROGRESS] = np.where(np.isnan(values), row[_PROGRESS], values)
        if np.isnan(row[_READY]):
            row[_READY] = 1.0
