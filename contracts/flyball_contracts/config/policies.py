"""Rules of the guard for some decisions only, in addition to the general limits."""

import re
from functools import cache
from typing import Annotated, Literal, NamedTuple, cast

import msgspec

from flyball_contracts.config.base import Count, Driver, NotNegative, Positive, Section
from flyball_contracts.records.commands.decisions import DecisionType
from flyball_contracts.records.commands.kinds.base import Urgency

Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
Patterns = tuple[str, ...]
Percent = Annotated[str, msgspec.Meta(pattern="^(100|[1-9]?[0-9])%$", description="a number, or percent such as 25%")]
DAYS: tuple[Day, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WINDOW = re.compile(r"(?:([a-z,]+) )?([0-9:]+) *- *(?:([a-z]+) )?([0-9:]+)")
_TIME = re.compile(r"(?:(mon|tue|wed|thu|fri|sat|sun) )?([01]\d:[0-5]\d|2[0-3]:[0-5]\d|24:00)")
_DAY_OF = {str(day): number for number, day in enumerate(DAYS)}
_DAY_MIN, WEEK_MIN = 1_440, 10_080


class DecisionKey(Section, frozen=True, kw_only=True):
    """A public key and the decisions that it may sign; a decision must be within all of its scopes.

    ``cells``, ``workloads`` and ``tenants`` are glob patterns, ``types`` and ``platforms`` (drivers) are names; for
    these two, empty means all. On Kubernetes workloads are ``namespace/name``, so ``ml/*`` is a namespace. A workload
    without a specification, a pool and a node have no tenant: only ``*`` covers them. ``public`` is the base64 of its
    32 bytes, as ``flyball keys show`` prints it.
    """

    public: str
    cells: Patterns = ("*",)
    workloads: Patterns = ("*",)
    tenants: Patterns = ("*",)
    types: tuple[DecisionType, ...] = ()
    platforms: tuple[Driver, ...] = ()

    def __post_init__(self) -> None:
        """Reject a key that may sign nothing."""
        _refuse_none(self, "cells", "workloads", "tenants")


class Span(NamedTuple):
    """First minute of a window in the week, from Monday 00:00, and its length in minutes."""

    first_min: int
    length_min: int


class Window(Section, frozen=True, kw_only=True):
    """A weekly time window on the clock of ``zone`` (an IANA name); ``end`` is exclusive.

    In the configuration it is a text, see :func:`window`. Daily, on ``days`` (none given: on all), from ``start:
    "22:00"`` to ``end: "06:00"``, past midnight if the end is earlier. Or weekly, from ``start: "fri 16:00"`` to ``end:
    "mon 08:00"``.
    """

    start: str
    end: str
    days: tuple[Day, ...] = ()
    zone: str = "UTC"

    def __post_init__(self) -> None:
        """Reject an invalid time of the week."""
        start, end = _TIME.fullmatch(self.start), _TIME.fullmatch(self.end)
        if start is None or end is None:
            wrong = self.start if start is None else self.end
            raise ValueError(f'{wrong!r} is no time; write such as "22:00", or "fri 16:00" for once a week')
        if bool(start[1]) != bool(end[1]):
            raise ValueError(f"{self.start!r} to {self.end!r}: name the day of both, or of none")
        if start[1] and self.days:
            raise ValueError(f"days: {self.start!r} names its day; leave days out")
        if self.start == self.end:
            raise ValueError(f'{self.start!r} to {self.end!r} has no length; for a whole day write "00:00" to "24:00"')
        from zoneinfo import ZoneInfo  # few configurations have windows, and agents need none

        try:
            ZoneInfo(self.zone)
        except (KeyError, ValueError, OSError) as error:
            raise ValueError(f"zone: {self.zone!r} is no time zone; name one as Europe/Berlin") from error

    @property
    def spans(self) -> tuple[Span, ...]:
        """The window as minutes of the week."""
        start, end = _minutes(self.start), _minutes(self.end)
        if " " in self.start:
            return (Span(start, (end - start) % WEEK_MIN),)
        days = [DAYS.index(day) for day in self.days] or range(len(DAYS))
        length_min = end - start if end > start else end - start + _DAY_MIN
        return tuple(Span(day * _DAY_MIN + start, length_min) for day in days)


class Limit(Section, frozen=True, kw_only=True):
    """Maximum in any ``window_s`` seconds in a cell, counted separately for each value of ``per``.

    ``actions`` are decisions. ``replicas`` are the replicas taken away, as a number or as a share of those that run
    now, such as 25%, rounded up. ``usd_per_hour`` is the increase of the cost: what the decision expects, and at least
    what its GPUs cost by the lowest price in the inventories. A pool of machines is a target of its own.
    """

    per: Literal["target", "workload", "tenant", "cell"] = "cell"
    window_s: Positive = 3600.0
    actions: Count | None = None
    replicas: Count | Percent | None = None
    usd_per_hour: NotNegative | None = None

    def __post_init__(self) -> None:
        """Reject a limit without a maximum."""
        if self.actions is None and self.replicas is None and self.usd_per_hour is None:
            raise ValueError("it limits nothing; give actions, replicas or usd_per_hour")

    @property
    def share(self) -> int | None:
        """Maximum percentage of the running replicas that may be taken away; ``None`` if the maximum is a number."""
        return int(self.replicas.rstrip("%")) if isinstance(self.replicas, str) else None


class Quota(Section, frozen=True, kw_only=True):
    """Maximum that a tenant may run in a cell after a decision that adds: ``replicas``, ``gpus``, or both."""

    replicas: Count | None = None
    gpus: Positive | None = None


class GuardPolicy(Section, frozen=True, kw_only=True):
    """Rules for the decisions that match.

    ``cells``, ``workloads`` and ``tenants`` are glob patterns; empty ``types`` and ``urgencies`` mean all. ``protect``
    refuses, ``only_during`` and ``never_during`` are maintenance windows and freezes on the clock of ``zone`` (see
    :func:`window`), and with ``approval`` a person must agree first (``flyball approve``).
    """

    name: str
    cells: Patterns = ("*",)
    workloads: Patterns = ("*",)
    tenants: Patterns = ("*",)
    types: tuple[DecisionType, ...] = ()
    urgencies: tuple[Urgency, ...] = ()
    protect: bool = False
    approval: bool = False
    only_during: tuple[str, ...] = ()
    never_during: tuple[str, ...] = ()
    zone: str = "UTC"
    limits: tuple[Limit, ...] = ()
    quota: Quota | None = None

    def __post_init__(self) -> None:
        """Reject a policy without a rule, and one that matches nothing."""
        if not self.name:
            raise ValueError("name: it is empty; refusals name the policy by it")
        _refuse_none(self, "cells", "workloads", "tenants")
        for key in ("only_during", "never_during"):
            try:
                self.windows(getattr(self, key))
            except ValueError as error:
                raise ValueError(f"{key}: {error}") from None
        windows = self.only_during or self.never_during
        if not (self.protect or self.approval or windows or self.limits or self.quota):
            raise ValueError("it has no rule; give protect, approval, only_during, never_during, limits or quota")

    def windows(self, texts: tuple[str, ...]) -> tuple[Window, ...]:
        """Windows on the clock of this policy."""
        return tuple(window(text, self.zone) for text in texts)


@cache
def window(text: str, zone: str = "UTC") -> Window:
    """Parse ``22:00-06:00`` (daily), ``mon,tue 22:00-06:00`` (on some days) or ``fri 16:00-mon 08:00`` (weekly).

    Raises ``ValueError`` for an invalid time or zone.
    """
    found = _WINDOW.fullmatch(text)
    if found is None:
        raise ValueError(f'{text!r} is no window; write such as "22:00-06:00" or "fri 16:00-mon 08:00"')
    days, start, last, end = found.groups()
    if last is not None:
        return Window(start=f"{days} {start}" if days else start, end=f"{last} {end}", zone=zone)
    named = tuple(days.split(",")) if days else ()
    if wrong := [day for day in named if day not in _DAY_OF]:
        raise ValueError(f"{text!r}: {wrong[0]!r} is no day; days are {', '.join(DAYS)}")
    return Window(start=start, end=end, days=cast("tuple[Day, ...]", named), zone=zone)


def _refuse_none(section: Section, *keys: str) -> None:
    for key in keys:
        if not getattr(section, key):
            raise ValueError(f"{key}: none is named, so it matches nothing; leave it out, or name patterns")


def _minutes(text: str) -> int:
    """Minutes of the day or, with a day, of the week."""
    found = _TIME.fullmatch(text)
    assert found is not None
    day = _DAY_OF[found[1]] if found[1] else 0
    hours, minutes = found[2].split(":")
    return day * _DAY_MIN + 60 * int(hours) + int(minutes)
