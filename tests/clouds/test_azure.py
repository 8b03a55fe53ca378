"""Pools on Azure, by its own library, on a strict fake of the documented contract."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.actuators.carry_out import carried_out, ended, submitted
from tests.brokers.embedded import EmbeddedBroker
from tests.clouds.azure import AzureFake
from tests.clouds.buying import buy, claimed, settle
from tests.clouds.serving import carried_out_by_the_service

from flyball_actuators.platforms import Done, Failed, Handle, PlatformError, Rejected, Superseded
from flyball_actuators.platforms.pools import errors
from flyball_contracts.records import SubjectState


@pytest.fixture
def azure(quick: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[AzureFake]:
    monkeypatch.setattr(errors, "BACKOFF_S", (0.001, 0.01))
    fake = AzureFake()
    yield fake
    fake.close()


def test_a_pool_grows_and_shrinks(azure: AzureFake) -> None:
    pool = azure.pool()
    azure.throttled["PATCH set"] = 2
    platform = azure.platform(pool)
    planned = submitted(platform, buy(pool, 0, 3), dry_run=True)
    assert isinstance(planned, Handle)
    assert (planned.operation, azure.size(pool)) == ("", 0)
    out = carried_out(platform, buy(pool, 0, 3, "out"))
    assert isinstance(out, Done), out
    assert (out.observed.replicas, out.observed.ready, azure.size(pool)) == (3, 3, 3)
    assert azure.sets[pool.resource]["tags"] == {"owner": "ml", "flyball-decision": "out"}
    back = carried_out(platform, buy(pool, 3, 1, "in"))
    assert isinstance(back, Done), back
    assert (back.observed.replicas, azure.size(pool), azure.sets[pool.resource]["capacity"]) == (1, 1, 1)
    azure.capacity = 0
    assert isinstance(carried_out(platform, buy(pool, 1, 2, "in vain")), Failed)
    assert azure.used == azure.allowed, "the rights of the role are enough, and all are needed"


@pytest.mark.parametrize("cut", ["before", "after"])
@pytest.mark.parametrize(("before", "after", "call"), [(0, 1, "PATCH set"), (4, 2, "PATCH set"), (4, 2, "POST delete")])
def test_a_crash_between_call_and_answer_settles_to_exactly_one(
    azure: AzureFake, cut: str, before: int, after: int, call: str
) -> None:
    pool = azure.pool(before)
    decision = buy(pool, before, after)
    azure.cut[call] = cut
    first = azure.platform(pool)
    before_it = claimed(first, decision)
    if call == "POST delete":
        handle = submitted(first, decision)
        assert isinstance(handle, Handle)
        with pytest.raises(PlatformError):
            first.poll(handle)
    else:
        with pytest.raises(PlatformError):
            submitted(first, decision)
    restarted = azure.platform(pool)
    handle = settle(restarted, decision, before_it)
    assert isinstance(handle, Handle), handle
    assert isinstance(ended(restarted, handle), Done)
    assert azure.size(pool) == after
    assert isinstance(settle(azure.platform(pool), decision, before_it), Handle)
    assert azure.size(pool) == after


def test_machines_with_work_and_protected_ones_stay(azure: AzureFake) -> None:
    pool = azure.pool(4)
    azure.sets[pool.resource]["machines"]["3"]["protected"] = True
    platform = azure.platform(pool, busy=frozenset({f"{pool.resource}000002"}))
    assert isinstance(submitted(platform, buy(pool, 4, 1, "three")), Rejected)
    assert isinstance(carried_out(platform, buy(pool, 4, 2, "two")), Done)
    assert sorted(azure.sets[pool.resource]["machines"]) == ["2", "3"]


def test_what_does_not_come_is_asked_for_no_more(azure: AzureFake) -> None:
    pool = azure.pool(1)
    azure.capacity = 1
    failed = carried_out(azure.platform(pool), buy(pool, 1, 4))
    assert isinstance(failed, Failed)
    assert "AllocationFailed" in failed.answer
    assert "use a pool of another zone" in failed.answer
    assert (azure.size(pool), azure.sets[pool.resource]["capacity"]) == (2 + 2, 2)  # two are still ending
    azure.platform(pool).observe(buy(pool, 2, 2))
    assert azure.size(pool) == 2


def test_an_eviction_is_told(azure: AzureFake) -> None:
    pool = azure.pool(market="spot")
    handle = submitted(azure.platform(pool), buy(pool, 0, 2))
    assert isinstance(handle, Handle)
    azure.interrupt(pool)
    failed = ended(azure.platform(pool), handle)
    assert isinstance(failed, Failed)
    assert "1 machines of" in failed.answer
    assert isinstance(carried_out(azure.platform(pool), buy(pool, 1, 2, "again")), Done)
    assert azure.size(pool) == 2


def test_a_rival_write_is_a_conflict_and_has_the_last_word(azure: AzureFake) -> None:
    pool = azure.pool(1)
    platform, decision = azure.platform(pool), buy(pool, 1, 2, "ours")
    handle = submitted(platform, decision)
    assert isinstance(handle, Handle)
    stale = azure.platform(pool).submit(buy(pool, 1, 3, "stale"), SubjectState(version="1//"), dry_run=False)
    assert isinstance(stale, Rejected)
    assert stale.code == "conflict"
    assert isinstance(carried_out(azure.platform(pool), buy(pool, 2, 4, "theirs")), Done)
    assert isinstance(platform.poll(handle), Superseded)


def test_a_missing_right_is_a_refusal(azure: AzureFake) -> None:
    pool = azure.pool()
    azure.denied.add("PATCH set")
    answer = submitted(azure.platform(pool), buy(pool, 0, 1))
    assert isinstance(answer, Rejected)
    assert (answer.code, "grant the identity" in answer.detail) == ("platform", True)
    assert azure.size(pool) == 0


@pytest.mark.parametrize(
    ("status", "error", "code", "says"),
    [
        (409, "OperationNotAllowed", "platform", "raise the subscription's quota, or request fewer"),
        (409, "SkuNotAvailable", "platform", "use a pool of another zone"),
        (409, "Conflict", "conflict", "decide again on what is there now"),
        (412, "PreconditionFailed", "conflict", "decide again on what is there now"),
        (401, "ExpiredAuthenticationToken", "platform", "renew the credentials"),
        (404, "ResourceNotFound", "unknown_target", "correct the pool"),
        (400, "InvalidParameter", "invalid", "correct the pool in actuator.platforms"),
    ],
)
def test_what_the_cloud_refuses_has_a_remedy_and_buys_nothing(
    azure: AzureFake, status: int, error: str, code: str, says: str
) -> None:
    pool = azure.pool()
    azure.errors["PATCH set"] = (status, error, "no")
    answer = submitted(azure.platform(pool), buy(pool, 0, 2))
    assert isinstance(answer, Rejected)
    assert (answer.code, says in answer.detail, azure.size(pool)) == (code, True, 0)


def test_a_broken_cloud_is_an_unknown_outcome_that_settles(azure: AzureFake) -> None:
    pool = azure.pool()
    platform, decision = azure.platform(pool), buy(pool, 0, 1)
    before = claimed(platform, decision)
    azure.errors["PATCH set"] = (503, "ServiceUnavailable", "try again")
    with pytest.raises(PlatformError, match="HTTP 503"):
        submitted(platform, decision)
    handle = settle(azure.platform(pool), decision, before)
    assert isinstance(handle, Handle)
    assert isinstance(ended(platform, handle), Done)
    azure.throttled["PATCH set"] = errors.TRIES
    with pytest.raises(PlatformError, match=f"throttled {errors.TRIES} times"):
        submitted(platform, buy(pool, 1, 2, "second"))
    assert azure.size(pool) == 1


def test_from_the_topic_to_the_cloud(
    azure: AzureFake, embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path
) -> None:
    pool = azure.pool(market="spot")
    carried_out_by_the_service(embedded_broker, tmp_path, azure.entry(pool, budget_usd_per_hour=100.0), pool, azure)
