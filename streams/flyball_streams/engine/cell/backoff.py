"""Growing waits for decisions that had no effect, and a budget of decisions for each subject.

A decision that was refused, failed, planned in dry run, superseded or never answered is not taken again before a wait
that doubles with each attempt, from the cooldown up to an hour. An effect that is observed ends the wait, and a
decision that is substantially another one has a wait of its own. Beside that, a subject has a token bucket: whatever
happens, it gets no more than sixty decisions in an hour.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Evidence

MOST_WAIT_S = 3600.0
MOST_URGENT_S = 120.0
"""Longest wait for what cannot wait (a failing device, requests that nobody answers), and for a person's approval."""
BURST = 10.0
REFILL_S = 72.0
"""A token bucket of 10 decisions that gains one in 72 s lets at most 60 through in any hour."""
RESERVE = 2.0
"""Decisions of a bucket that are kept for what is urgent."""
MOST_ATTEMPTS = 64
FORGET_S = 2 * MOST_WAIT_S


UNANSWERED = "unanswered"
UNAPPROVED = "refused by approval"


class Rule(NamedTuple):
    """The first wait, and the part of the replicas by which decisions that are substantially the same may differ."""

    cooldown_s: float
    tolerance: float


class Attempt(msgspec.Struct):
    """Decisions about one subject that say the same and had no effect so far.

    ``kind`` is what it does, ``about`` the device or mix that it names, ``before`` and ``after`` are replicas.
    ``decision`` is the id of the last one and ``since_ns`` the tick at which it was taken or came to nothing; ``ends``
    counts how the ones before ended, in words, and ``open`` says that the last one may still have an effect.
    """

    kind: str
    about: str
    before: int
    after: int
    decision: str = ""
    since_ns: int = 0
    count: int = 0
    open: bool = True
    ends: dict[str, int] = {}

    def same(self, other: "Attempt", tolerance: float) -> bool:
        """Whether two say the same: to the same end, in the same direction, by about as much."""
        if (self.kind, self.about) != (other.kind, other.about):
            return False
        if (self.after > self.before, self.after < self.before) != (
            other.after > other.before,
            other.after < other.before,
        ):
            return False
        return abs(self.after - other.after) <= tolerance * max(self.after, other.after)


class Waited(NamedTuple):
    """What a decision says of the attempts before it: a clause of its reason, and the evidence for it."""

    clause: str = ""
    evidence: tuple[Evidence, ...] = ()


class Subject(msgspec.Struct):
    """Attempts about one subject, oldest first, and what is left of its budget as of ``filled_ns``."""

    attempts: list[Attempt] = []
    tokens: float = BURST
    filled_ns: int = 0


class Backoff(msgspec.Struct):
    """Attempts and budgets by subject."""

    subjects: dict[str, Subject] = {}

    def admit(self, subject: str, wanted: Attempt, now: int, rule: Rule, *, urgent: bool) -> Waited | None:
        """What to say of the attempts before when a decision may be made now, ``None`` while it has to wait."""
        known = self.subjects.get(subject)
        if known is None:
            return Waited()
        if _filled(known, now) < (1.0 if urgent else 1.0 + RESERVE):
            return None
        alike = _alike(known, wanted, rule)
        late = any(now - attempt.since_ns < _wait_ns(attempt, rule, urgent=urgent) for attempt in alike)
        return None if late else _said(alike, now)

    def said(self, subject: str, wanted: Attempt, now: int, rule: Rule) -> Waited:
        """What to say of the attempts before a decision."""
        known = self.subjects.get(subject)
        return Waited() if known is None else _said(_alike(known, wanted, rule), now)

    def waits(self, subject: str, kind: str, now: int, rule: Rule) -> bool:
        """Whether a decision of a kind came to nothing and has to wait, or the budget is used up."""
        known = self.subjects.get(subject)
        if known is None:
            return False
        ended = [a for a in known.attempts if a.kind == kind and not a.open]
        late = any(now < a.since_ns + _wait_ns(a, rule, urgent=False) for a in ended)
        return late or _filled(known, now) < 1.0 + RESERVE

    def note(self, subject: str, made: Attempt, decision: str, now: int, rule: Rule) -> None:
        """A decision was taken."""
        known = self.subjects.setdefault(subject, Subject(filled_ns=now))
        known.tokens, known.filled_ns = _filled(known, now) - 1.0, now
        alike = _alike(known, made, rule)
        if alike:
            attempt = alike[0]
            if attempt.open:
                attempt.ends[UNANSWERED] = attempt.ends.get(UNANSWERED, 0) + 1
        else:
            attempt = made
            known.attempts.append(made)
            del known.attempts[:-MOST_ATTEMPTS]
        attempt.decision, attempt.since_ns, attempt.open = decision, now, True
        attempt.count += 1

    def ended(self, subject: str, decision: str, how: str, now: int | None) -> None:
        """A decision came to nothing, and how; the wait counts from ``now``, or from the decision."""
        known = self.subjects.get(subject)
        for attempt in known.attempts if known is not None else ():
            if attempt.decision == decision and attempt.open:
                attempt.ends[how] = attempt.ends.get(how, 0) + 1
                attempt.open = False
                attempt.since_ns = attempt.since_ns if now is None else now

    def worked(self, subject: str, decision: str) -> None:
        """A decision had its effect: what was tried to the same end, in the same direction, is over."""
        known = self.subjects.get(subject)
        if known is None:
            return
        made = next((a for a in known.attempts if a.decision == decision), None)
        if made is not None:
            up = made.after > made.before
            known.attempts = [a for a in known.attempts if a.kind != made.kind or (a.after > a.before) != up]

    def reached(self, subject: str, kind: str, about: str) -> None:
        """What attempts of a kind were about is so."""
        known = self.subjects.get(subject)
        if known is not None:
            known.attempts = [a for a in known.attempts if (a.kind, a.about) != (kind, about)]

    def forget(self, now: int) -> None:
        """Drop what is long over, and what lies in the future: the cell's clock was set back."""
        for name, known in list(self.subjects.items()):
            known.attempts = [a for a in known.attempts if 0 <= now - a.since_ns < FORGET_S * NS_PER_S]
            if known.filled_ns > now:
                known.tokens, known.filled_ns = BURST, now
            if not known.attempts and _filled(known, now) >= BURST:
                del self.subjects[name]


def times(count: int) -> str:
    """How often, in words."""
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _said(alike: Sequence[Attempt], now: int) -> Waited:
    if not alike:
        return Waited()
    attempt = alike[0]
    ends = dict(attempt.ends)
    if attempt.open:
        ends[UNANSWERED] = ends.get(UNANSWERED, 0) + 1
    waited_s = (now - attempt.since_ns) / NS_PER_S
    evidence = (
        Evidence(name="decisions.without_effect", value=float(attempt.count), unit="{decision}"),
        Evidence(name="waited", value=waited_s, unit="s", record=attempt.decision),
    )
    return Waited(f"{', '.join(_told(how, n) for how, n in ends.items())}; waited {waited_s:.0f} s", evidence)


def _told(how: str, count: int) -> str:
    verb, _, rest = how.partition(" ")
    return f"{verb} {times(count)} {rest}".rstrip()


def _alike(known: Subject, wanted: Attempt, rule: Rule) -> list[Attempt]:
    """Attempts that say the same, the nearest first; more than one may be within the tolerance."""
    found = [a for a in known.attempts if a.same(wanted, rule.tolerance)]
    return sorted(found, key=lambda a: (abs(a.after - wanted.after), -a.since_ns))


def _wait_ns(attempt: Attempt, rule: Rule, *, urgent: bool) -> int:
    soon = urgent or UNAPPROVED in attempt.ends  # whoever approves it waits for the next one
    most_s = MOST_URGENT_S if soon else MOST_WAIT_S
    return round(min(max(rule.cooldown_s, 1.0) * 2.0 ** min(attempt.count - 1, 32), most_s) * NS_PER_S)


def _filled(known: Subject, now: int) -> float:
    return min(BURST, known.tokens + max(0, now - known.filled_ns) / (REFILL_S * NS_PER_S))
