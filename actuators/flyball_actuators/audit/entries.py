"""Entries of an audit trail, one per line."""

from typing import Literal

import msgspec

from flyball_contracts.records import AnyDecision, Outcome, SubjectState

Stage = Literal["arrival", "observed", "claimed", "last"]


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="what"):
    """One line: ``line`` is its number in the file, ``at_ns`` the actuator's clock, ``decision`` the decision's id."""

    line: int
    at_ns: int
    decision: str = ""


class Started(Entry, frozen=True, kw_only=True, tag="start"):
    """An actuator opened the file.

    ``config`` is the SHA-256 of its settings, ``previous`` the anchor of the file that this one continues, and ``cut``
    the number of bytes removed from an unfinished last line.
    """

    actuator: str
    mode: str
    version: str
    config: str
    previous: str = ""
    cut: int = 0


class Received(Entry, frozen=True, kw_only=True, tag="decision"):
    """A decision was read for the first time by this process; ``key`` is the id of the signing key, if any."""

    record: AnyDecision
    partition: int
    offset: int
    key: str = ""


class Judged(Entry, frozen=True, kw_only=True, tag="checks"):
    """The guard's checks: those that ``passed``, and the one that ``objected``.

    Stages: on ``arrival``, on the ``observed`` state, once ``claimed``, and ``last`` right before the decision is
    submitted. On arrival and once claimed, only objections are recorded. An entry of this kind is certainly on disk
    only once a later entry is synced.
    """

    stage: Stage
    passed: tuple[str, ...]
    objected: str = ""
    code: str = ""
    detail: str = ""
    policy: str = ""


class Submitting(Entry, frozen=True, kw_only=True, tag="tell"):
    """A change is about to be submitted, on condition that the platform still shows ``observed``."""

    driver: str
    dry_run: bool
    observed: SubjectState | None


class Called(Entry, frozen=True, kw_only=True, tag="call"):
    """One call to the platform; see :class:`flyball_actuators.platforms.calls.Call`."""

    driver: str
    verb: str
    object: str
    status: str
    request_id: str = ""


class Published(Entry, frozen=True, kw_only=True, tag="outcome"):
    """An outcome that is about to be published."""

    outcome: Outcome


class Refused(Entry, frozen=True, kw_only=True, tag="dead letter"):
    """A message on the decisions topic that is not a valid decision, or not signed by an authorised key."""

    partition: int
    offset: int
    error: str


AnyEntry = Started | Received | Judged | Submitting | Called | Published | Refused
