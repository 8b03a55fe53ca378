"""Errors of each NVLink, by field on Hopper and later, else by the older call, and events of links with new ones."""

from collections.abc import Iterator, Mapping, Sequence
from ctypes import byref, c_ulonglong
from typing import NamedTuple

from flyball_collectors.base import NAN
from flyball_collectors.nvml.calls.fields import Field, FieldBatch
from flyball_collectors.nvml.calls.gate import Gate
from flyball_collectors.nvml.devices.topology import MAX_LINKS
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import NodeEvent
from flyball_contracts.records.events import node_event

KINDS = ("crc", "replay", "recovery", "ecc", "receive", "integrity", "effective")
"""Kinds of errors; symbol errors are left out, because links correct them all the time."""
_IDS = {"replay": 161, "recovery": 162, "crc": 163, "receive": 208, "integrity": 211, "effective": 219}
_BLACKWELL_RECOVERIES = 215
FIELDS = tuple(
    Field(id, link * len(KINDS) + KINDS.index(kind), scope=link)
    for kind, id in (*_IDS.items(), ("recovery", _BLACKWELL_RECOVERIES))
    for link in range(MAX_LINKS)
)
COUNTERS = ("replay", "recovery", "crc", "crc", "ecc")
"""Counters of ``nvmlDeviceGetNvLinkErrorCounter``, by number: CRC of flow control and of data."""
_CALL = "nvmlDeviceGetNvLinkErrorCounter"
_WORDS = {
    "crc": "CRC errors", "replay": "replays", "recovery": "recoveries", "ecc": "ECC errors",
    "receive": "receive errors", "integrity": "integrity errors", "effective": "errors beyond correction",
}  # fmt: skip
_QUIET_NS = 60 * NS_PER_S
_LONGEST_QUIET_NS = 3600 * NS_PER_S

Counts = Mapping[int, Mapping[str, float]]
"""Errors since the driver was loaded, by link and kind."""


def by_link(row: Sequence[float]) -> dict[int, dict[str, float]]:
    """Counts of a row that :data:`FIELDS` were read into; links without any are left out."""
    found: dict[int, dict[str, float]] = {}
    for place, value in enumerate(row):
        if value == value:
            found.setdefault(place // len(KINDS), {})[KINDS[place % len(KINDS)]] = value
    return found


def sum_of(counts: Counts, kind: str = "") -> float:
    """Errors of a kind, or of all, over all links; NaN if none reports them."""
    reported = [value for link in counts.values() for name, value in link.items() if kind in ("", name)]
    return sum(reported) if reported else NAN


class LinkErrors:
    """Reads the errors of each NVLink of one GPU; missing counters are requested once."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._fields = FieldBatch(gate, FIELDS)
        self._counters = [(link, counter) for link in range(MAX_LINKS) for counter in range(len(COUNTERS))]
        self._count = c_ulonglong()
        self._count_at = byref(self._count)

    def read(self, links: Sequence[int]) -> dict[int, dict[str, float]]:
        """Raw counts by link and kind; ``links`` are the existing ones."""
        row = [NAN] * (MAX_LINKS * len(KINDS))
        self._fields.read(row)
        return by_link(row) or self._by_call(links)

    def _by_call(self, links: Sequence[int]) -> dict[int, dict[str, float]]:
        found: dict[int, dict[str, float]] = {}
        reported: list[tuple[int, int]] = []
        for link, counter in self._counters:
            if link not in links:
                reported.append((link, counter))
                continue
            if self._gate.call(_CALL, link, counter, self._count_at):
                kinds, kind = found.setdefault(link, {}), COUNTERS[counter]
                kinds[kind] = kinds.get(kind, 0.0) + self._count.value
                reported.append((link, counter))
            self._gate.never.discard((_CALL, link))  # another counter of the link may be reported
        self._counters = reported
        return found


class _Watched(NamedTuple):
    """One link: counts at its last report, the time of that, and the wait until the next."""

    counts: Mapping[str, float]
    reported_ns: int
    quiet_ns: int


class LinkWatch:
    """Reports links whose errors grow.

    The first growth is an event at once. A link with further errors is reported again with the new ones, after a
    minute, then after twice as long each time, up to an hour; after that long without errors it starts over.
    """

    def __init__(self) -> None:
        self._watched: dict[tuple[str, int], _Watched] = {}

    def note(self, node: str, device: str, counts: Counts, now_ns: int) -> list[NodeEvent]:
        """Events of one device at one read of its ``counts``."""
        return list(self._note(node, device, counts, now_ns))

    def keep(self, devices: set[str]) -> None:
        """Drop devices that are gone."""
        self._watched = {key: one for key, one in self._watched.items() if key[0] in devices}

    def _note(self, node: str, device: str, counts: Counts, now_ns: int) -> Iterator[NodeEvent]:
        for link, now in counts.items():
            before = self._watched.get((device, link))
            if before is None or any(count < before.counts.get(kind, 0.0) for kind, count in now.items()):
                self._watched[device, link] = _Watched(now, now_ns, 0)  # seen first, or its counters began again
                continue
            known = {**now, **before.counts}  # a kind that a read lacks has not grown, and a new one begins here
            grown = {kind: int(count - known[kind]) for kind, count in now.items()}
            self._watched[device, link] = before._replace(counts=known)
            total, since_ns = sum(grown.values()), now_ns - before.reported_ns
            if not total or 0 <= since_ns < before.quiet_ns:  # a negative time is of a clock that was set back
                continue
            again = before.quiet_ns and since_ns < 2 * before.quiet_ns
            quiet_ns = min(2 * before.quiet_ns, _LONGEST_QUIET_NS) if again else _QUIET_NS
            self._watched[device, link] = _Watched({**known, **now}, now_ns, quiet_ns)
            words = ", ".join(f"{grown[kind]} {_WORDS[kind]}" for kind in KINDS if grown.get(kind))
            took = f" in {since_ns / NS_PER_S:.4g} s" if since_ns >= 0 else ""
            yield node_event(
                node,
                now_ns,
                "nvlink_error",
                severity="warning",
                device=device,
                remedy="notify",
                message=f"NVLink {link}: {words}{took}",
                link=link,
                count=total,
            )
