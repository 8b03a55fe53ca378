"""What stands on the lines of an audit trail."""

from typing import Literal

import msgspec

from flyball_contracts.records import AnyDecision, Outcome, SubjectState

Stage = Literal["arrival", "observed", "claimed", "last"]


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="what"):
    """One line: ``line`` is its number in the file, ``at_ns`` the actuator's clock, ``decision`` whom it is about."""

    line: int
    at_ns: int
    decision: str = ""


class Started(Entry, frozen=True, kw_only=True, tag="start"):
    """An actuator opens the file.

    ``config`` is the SHA-256 of its settings, ``previous`` the anchor of the file that this one follows, and ``cut``
    how many bytes of a line were cut off that a crash had left unfinished.
    """

    actuator: str
    mode: str
    version: str
    config: str
    previous: str = ""
    cut: int = 0


class Received(Entry, frozen=True, kw_only=True, tag="decision"):
    """A decision was read, for the first time by this process; ``key`` is that of its signature, if any."""

    record: AnyDecision
    partition: int
    offset: int
    key: str = ""


class Judged(Entry, frozen=True, kw_only=True, tag="checks"):
    """The guard judged: ``passed`` let it through, and ``objected`` did not.

    On ``arrival``, on what was ``observed``, once more when it was ``claimed``, and a ``last`` time right before the
    platform is told; of all but the second only objections are recorded.
    """

    stage: Stage
    passed: tuple[str, ...]
    objected: str = ""
    code: str = ""
    detail: str = ""
    policy: str = ""


class Submitting(Entry, frozen=True, kw_only=True, tag="tell"):
    """A change is about to be submitted, provided that the platform still shows ``observed``."""

    driver: str
    dry_run: bool
    observed: SubjectState | None


class Called(Entry, frozen=True, kw_only=True, tag="call"):
    """One call of the platform; see :class:`flyball_actuators.platforms.calls.Call`."""

    driver: str
    verb: str
    object: str
    status: str
    request_id: str = ""


class Published(Entry, frozen=True, kw_only=True, tag="outcome"):
    """An outcome, about to be published."""

    outcome: Outcome


class Refused(Entry, frozen=True, kw_only=True, tag="dead letter"):
    """A message on the topic of decisions that is none, or that nobody may have signed."""

    partition: int
    offset: int
    error: str


AnyEntry = Started | Received | Judged | Submitting | Called | Published | Refused
