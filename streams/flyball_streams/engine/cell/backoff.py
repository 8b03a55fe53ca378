"""Growing waits for decisions that had no effect, and a budget of decisions for each subject.

A decision that was refused, failed, planned in dry run, superseded or never answered is not repeated before a wait that
doubles with each attempt, from the cooldown up to an hour. An observed effect ends the wait, and a substantially
different decision has its own wait. In addition, each subject has a token bucket that limits it to sixty decisions in
an hour.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Evidence

MOST_WAIT_S = 3600.0
MOST_URGENT_S = 120.0
"""Longest wait of urgent decisions (a failing device, requests without a server), and of those that need approval."""
BURST = 10.0
REFILL_S = 72.0
"""A token bucket of 10 decisions that gains one every 72 s allows at most 60 in any hour."""
RESERVE = 2.0
"""Tokens that are reserved for urgent decisions."""
MOST_ATTEMPTS = 64
FORGET_S = 2 * MOST_WAIT_S


UNANSWERED = "unanswered"
UNAPPROVED = "refused by approval"


class Rule(NamedTuple):
    """The first wait in s, and the relative difference in replicas up to which decisions count as the same."""

    cooldown_s: float
    tolerance: float


class Attempt(msgspec.Struct):
    """Equivalent decisions about one subject without effect so far.

    ``kind`` is the action, ``about`` the device or mix that it names, ``before`` and ``after`` are replicas.
    ``decision`` is the id of the last one and ``since_ns`` the tick at which it was made or failed; ``ends`` counts how
    the earlier ones ended, in words, and ``open`` means that the last one may still have an effect. ``allowed`` is how
    many replicas the limits that refused the last one would have let go.
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
    allowed: int | None = None

    def same(self, other: "Attempt", tolerance: float) -> bool:
        """Whether two are equivalent: the same action, in the same direction, to about as many replicas."""
        if (self.kind, self.about) != (other.kind, other.about):
            return False
        if (self.after > self.before, self.after < self.before) != (
            other.after > other.before,
            other.after < other.before,
        ):
            return False
        return abs(self.after - other.after) <= tolerance * max(self.after, other.after)


class Waited(NamedTuple):
    """The explanation of earlier attempts in a decision: a clause of its reason, and its evidence."""

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
        """The explanation of earlier attempts if a decision may be made now, ``None`` while it has to wait."""
        known = self.subjects.get(subject)
        if known is None:
            return Waited()
        if _filled(known, now) < (1.0 if urgent else 1.0 + RESERVE):
            return None
        similar = _similar(known, wanted, rule)
        late = any(now - attempt.since_ns < _wait_ns(attempt, rule, urgent=urgent) for attempt in similar)
        return None if late else _explanation(similar, now)

    def explanation(self, subject: str, wanted: Attempt, now: int, rule: Rule) -> Waited:
        """The explanation of earlier attempts of a decision."""
        known = self.subjects.get(subject)
        return Waited() if known is None else _explanation(_similar(known, wanted, rule), now)

    def waits(self, subject: str, kind: str, now: int, rule: Rule) -> bool:
        """Whether urgent decisions of a kind have to wait: one failed recently, or the whole budget is used up."""
        known = self.subjects.get(subject)
        if known is None:
            return False
        ended = [a for a in known.attempts if a.kind == kind and not a.open]
        late = any(now < a.since_ns + _wait_ns(a, rule, urgent=False) for a in ended)
        return late or _filled(known, now) < 1.0

    def is_short(self, subject: str, now: int) -> bool:
        """Whether what is left of a subject's budget is reserved for urgent decisions."""
        known = self.subjects.get(subject)
        return known is not None and _filled(known, now) < 1.0 + RESERVE

    def allowed(self, subject: str, now: int) -> int | None:
        """How many replicas of a subject may stop at once, by the last refusal; ``None`` where nothing is known.

        It is also ``None`` if the limits allowed no replica: then the whole change is proposed again after the wait.
        """
        known = self.subjects.get(subject)
        refused = [
            a for a in (known.attempts if known is not None else ())
            if a.after < a.before and not a.open and a.allowed is not None and now - a.since_ns < MOST_WAIT_S * NS_PER_S
        ]  # fmt: skip
        return (max(refused, key=lambda a: a.since_ns).allowed or None) if refused else None

    def note(self, subject: str, made: Attempt, decision: str, now: int, rule: Rule) -> None:
        """Note a decision."""
        known = self.subjects.setdefault(subject, Subject(filled_ns=now))
        known.tokens, known.filled_ns = _filled(known, now) - 1.0, now
        similar = _similar(known, made, rule)
        if similar:
            attempt = similar[0]
            if attempt.open:
                attempt.ends[UNANSWERED] = attempt.ends.get(UNANSWERED, 0) + 1
        else:
            attempt = made
            known.attempts.append(made)
            del known.attempts[:-MOST_ATTEMPTS]
        attempt.decision, attempt.since_ns, attempt.open, attempt.allowed = decision, now, True, None
        attempt.count += 1

    def ended(self, subject: str, decision: str, how: str, now: int | None, *, allowed: int | None = None) -> None:
        """Note that a decision ended without effect, and how; the wait starts at ``now``, or at the decision.

        ``allowed`` is how many replicas the limits that refused it would have let go; it counts even if the decision
        had already ended unanswered.
        """
        known = self.subjects.get(subject)
        for attempt in known.attempts if known is not None else ():
            if attempt.decision == decision and not attempt.open and allowed is not None:
                attempt.allowed = allowed
            if attempt.decision == decision and attempt.open:
                attempt.ends[how] = attempt.ends.get(how, 0) + 1
                attempt.open, attempt.allowed = False, allowed
                attempt.since_ns = attempt.since_ns if now is None else now

    def worked(self, subject: str, decision: str) -> None:
        """Note that a decision had an effect: earlier attempts of the same kind and direction are dropped."""
        known = self.subjects.get(subject)
        if known is None:
            return
        made = next((a for a in known.attempts if a.decision == decision), None)
        if made is not None:
            up = made.after > made.before
            known.attempts = [a for a in known.attempts if a.kind != made.kind or (a.after > a.before) != up]

    def reached(self, subject: str, kind: str, about: str) -> None:
        """Note that the goal of attempts of a kind is reached: they are dropped."""
        known = self.subjects.get(subject)
        if known is not None:
            known.attempts = [a for a in known.attempts if (a.kind, a.about) != (kind, about)]

    def forget(self, now: int) -> None:
        """Drop attempts that are long over, and those of the future: the cell's clock was set back."""
        for name, known in list(self.subjects.items()):
            known.attempts = [a for a in known.attempts if 0 <= now - a.since_ns < FORGET_S * NS_PER_S]
            if known.filled_ns > now:
                known.tokens, known.filled_ns = BURST, now
            if not known.attempts and _filled(known, now) >= BURST:
                del self.subjects[name]


def times(count: int) -> str:
    """How often, in words."""
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _explanation(similar: Sequence[Attempt], now: int) -> Waited:
    if not similar:
        return Waited()
    attempt = similar[0]
    ends = dict(attempt.ends)
    if attempt.open:
        ends[UNANSWERED] = ends.get(UNANSWERED, 0) + 1
    waited_s = (now - attempt.since_ns) / NS_PER_S
    evidence = (
        Evidence(name="decisions.without_effect", value=float(attempt.count), unit="{decision}"),
        Evidence(name="waited", value=waited_s, unit="s", record=attempt.decision),
    )
    return Waited(f"{', '.join(_phrase(how, n) for how, n in ends.items())}; waited {waited_s:.0f} s", evidence)


def _phrase(how: str, count: int) -> str:
    verb, _, rest = how.partition(" ")
    return f"{verb} {times(count)} {rest}".rstrip()


def _similar(known: Subject, wanted: Attempt, rule: Rule) -> list[Attempt]:
    """Equivalent attempts, the closest first; more than one may be within the tolerance."""
    found = [a for a in known.attempts if a.same(wanted, rule.tolerance)]
    return sorted(found, key=lambda a: (abs(a.after - wanted.after), -a.since_ns))


def _wait_ns(attempt: Attempt, rule: Rule, *, urgent: bool) -> int:
    soon = urgent or UNAPPROVED in attempt.ends  # an approver waits for the next decision
    most_s = MOST_URGENT_S if soon else MOST_WAIT_S
    return round(min(max(rule.cooldown_s, 1.0) * 2.0 ** min(attempt.count - 1, 32), most_s) * NS_PER_S)


def _filled(known: Subject, now: int) -> float:
    return min(BURST, known.tokens + max(0, now - known.filled_ns) / (REFILL_S * NS_PER_S))
