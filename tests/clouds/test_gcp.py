"""Pools on Google Cloud, by its own library, on a strict fake of the documented contract."""

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest
from tests.actuators.carry_out import carried_out, ended, submitted
from tests.brokers.embedded import EmbeddedBroker
from tests.clouds.buying import buy, claimed, settle
from tests.clouds.gcp import GcpFake
from tests.clouds.serving import carried_out_by_the_service

from flyball_actuators.platforms import Done, Failed, Handle, PlatformError, Rejected
from flyball_actuators.platforms.pools import errors, operation as operations

# Who imports Google's library first compiles it, which takes minutes where others have the cores.
pytestmark = pytest.mark.timeout(600)
KINDS = ["instance_group", "resize_request"]
BUYS = {"instance_group": "POST resize", "resize_request": "POST resizeRequests"}


@pytest.fixture(scope="module", autouse=True)
def _library() -> None:
    """Imported before an actuator that is waited for starts."""
    import_module("google.cloud.compute_v1")


@pytest.fixture
def gcp(quick: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[GcpFake]:
    monkeypatch.setattr(errors, "BACKOFF_S", (0.001, 0.01))
    fake = GcpFake()
    yield fake
    fake.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_pool_grows_and_shrinks(gcp: GcpFake, kind: str) -> None:
    pool = gcp.pool(kind)
    gcp.throttled[BUYS[kind]] = 2
    platform = gcp.platform(pool)
    planned = submitted(platform, buy(pool, 0, 3), dry_run=True)
    assert isinstance(planned, Handle)
    assert (planned.operation, gcp.size(pool)) == ("", 0)
    out = carried_out(platform, buy(pool, 0, 3, "out"))
    assert isinstance(out, Done), out
    assert (out.observed.replicas, out.observed.ready, gcp.size(pool)) == (3, 3, 3)
    back = carried_out(platform, buy(pool, 3, 1, "in"))
    assert isinstance(back, Done), back
    assert (back.observed.replicas, gcp.size(pool)) == (1, 1)


def test_all_calls_have_the_rights_of_the_role_and_need_all_of_them(
    gcp: GcpFake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in KINDS:
        pool = gcp.pool(kind)
        out = buy(pool, 0, 2, f"out-{pool.name}")
        before = claimed(gcp.platform(pool), out)
        assert isinstance(carried_out(gcp.platform(pool), out), Done)
        assert isinstance(settle(gcp.platform(pool), out, before), Handle), "as after a crash"
        assert isinstance(carried_out(gcp.platform(pool), buy(pool, 2, 1, f"in-{pool.name}")), Done)
    monkeypatch.setattr(operations, "GIVE_UP_S", 0.0)
    gcp.capacity = 0
    for kind in KINDS:
        pool = gcp.pool(kind)
        assert isinstance(carried_out(gcp.platform(pool), buy(pool, 0, 1, f"vain-{pool.name}")), Failed)
    assert gcp.calls["POST cancel"]
    assert gcp.used == gcp.allowed


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cut", ["before", "after"])
@pytest.mark.parametrize(("before", "after"), [(0, 1), (3, 2)])
def test_a_crash_between_call_and_answer_settles_to_exactly_one(
    gcp: GcpFake, kind: str, cut: str, before: int, after: int
) -> None:
    pool = gcp.pool(kind, before)
    decision = buy(pool, before, after)
    gcp.cut[BUYS[kind] if after > before else "POST deleteInstances"] = cut
    before_it = claimed(gcp.platform(pool), decision)
    with pytest.raises(PlatformError):
        submitted(gcp.platform(pool), decision)
    restarted = gcp.platform(pool)
    handle = settle(restarted, decision, before_it)
    assert isinstance(handle, Handle), handle
    assert isinstance(ended(restarted, handle), Done)
    assert gcp.size(pool) == after
    assert isinstance(settle(gcp.platform(pool), decision, before_it), Handle)
    assert gcp.size(pool) == after


def test_idle_machines_go_first(gcp: GcpFake) -> None:
    pool = gcp.pool("instance_group", 3)
    busy, idle, other = sorted(gcp.groups[pool.resource]["machines"])
    platform = gcp.platform(pool, busy=frozenset({busy, other}))
    assert isinstance(submitted(platform, buy(pool, 3, 1, "two")), Rejected)
    assert isinstance(carried_out(platform, buy(pool, 3, 2, "one")), Done)
    assert idle not in gcp.groups[pool.resource]["machines"]


def test_what_the_zone_does_not_have_is_asked_for_no_more(gcp: GcpFake) -> None:
    pool = gcp.pool("instance_group", 1)
    gcp.capacity = 1
    failed = carried_out(gcp.platform(pool), buy(pool, 1, 4))
    assert isinstance(failed, Failed)
    assert "ZONE_RESOURCE_POOL_EXHAUSTED" in failed.answer
    assert "is set to 2 again" in failed.answer
    assert (gcp.size(pool), gcp.groups[pool.resource]["target"]) == (2, 2)


def test_a_request_that_is_not_met_is_cancelled(gcp: GcpFake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "GIVE_UP_S", 0.0)
    pool = gcp.pool("resize_request", 1)
    gcp.capacity = 0
    failed = carried_out(gcp.platform(pool), buy(pool, 1, 2))
    assert isinstance(failed, Failed)
    assert "was not met in time; it was cancelled" in failed.answer
    gcp.capacity = None
    assert gcp.size(pool) == 1
    gcp.platform(pool).observe(buy(pool, 1, 2))
    assert gcp.size(pool) == 1


def test_a_spot_interruption_is_replaced(gcp: GcpFake) -> None:
    pool = gcp.pool("instance_group", market="spot")
    handle = submitted(gcp.platform(pool), buy(pool, 0, 2))
    assert isinstance(handle, Handle)
    gcp.interrupt(pool)
    done = ended(gcp.platform(pool), handle)
    assert isinstance(done, Done)
    assert done.observed.ready == 2


@pytest.mark.parametrize(("verb", "says"), [("POST resize", "grant the service account"), ("GET get", "grant the")])
def test_a_missing_right_is_a_refusal(gcp: GcpFake, verb: str, says: str) -> None:
    pool = gcp.pool("instance_group")
    gcp.denied.add(verb)
    platform, decision = gcp.platform(pool), buy(pool, 0, 1)
    observed = platform.observe(decision)
    answer = observed if isinstance(observed, Rejected) else platform.submit(decision, observed, dry_run=False)
    assert isinstance(answer, Rejected)
    assert (answer.code, says in answer.detail) == ("platform", True)
    assert gcp.size(pool) == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("status", "reason", "code", "says"),
    [
        (403, "quotaExceeded", "platform", "raise the project's quota, or request fewer"),
        (409, "resourceInUseByAnotherResource", "conflict", "decide again on what is there now"),
        (412, "conditionNotMet", "conflict", "decide again on what is there now"),
        (401, "authError", "platform", "renew the credentials"),
        (400, "invalid", "invalid", "correct the pool in actuator.platforms"),
    ],
)
def test_what_the_cloud_refuses_has_a_remedy_and_buys_nothing(
    gcp: GcpFake, kind: str, status: int, reason: str, code: str, says: str
) -> None:
    pool = gcp.pool(kind)
    gcp.errors[BUYS[kind]] = (status, reason, "no")
    answer = submitted(gcp.platform(pool), buy(pool, 0, 2))
    assert isinstance(answer, Rejected)
    assert (answer.code, says in answer.detail, gcp.size(pool)) == (code, True, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_too_many_calls_are_repeated_and_a_broken_cloud_is_an_unknown_outcome(gcp: GcpFake, kind: str) -> None:
    pool = gcp.pool(kind)
    platform, decision = gcp.platform(pool), buy(pool, 0, 1)
    gcp.errors[BUYS[kind]] = (403, "rateLimitExceeded", "Quota exceeded for queries per minute")
    assert isinstance(carried_out(platform, decision), Done)
    gcp.errors[BUYS[kind]] = (503, "backendError", "try again")
    more = buy(pool, 1, 2, "more")
    before = claimed(platform, more)
    with pytest.raises(PlatformError, match="HTTP 503"):
        submitted(platform, more)
    handle = settle(gcp.platform(pool), more, before)
    assert isinstance(handle, Handle)
    assert isinstance(ended(platform, handle), Done)
    gcp.throttled[BUYS[kind]] = errors.TRIES
    with pytest.raises(PlatformError, match=f"throttled {errors.TRIES} times"):
        submitted(platform, buy(pool, 2, 3, "third"))
    assert gcp.size(pool) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_an_operation_that_fails_later_says_why(gcp: GcpFake, kind: str) -> None:
    pool = gcp.pool(kind, 1)
    gcp.fails = {"code": "QUOTA_EXCEEDED", "message": "Quota NVIDIA_A100_GPUS exceeded. Limit: 8.0"}
    failed = carried_out(gcp.platform(pool), buy(pool, 1, 3))
    assert isinstance(failed, Failed)
    assert "QUOTA_EXCEEDED: Quota NVIDIA_A100_GPUS exceeded" in failed.answer
    assert "raise the project's quota" in failed.answer
    assert failed.observed is not None
    assert (failed.observed.replicas, gcp.size(pool)) == (1, 1)


def test_from_the_topic_to_the_cloud(
    gcp: GcpFake, embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path
) -> None:
    pool = gcp.pool("instance_group", market="spot")
    carried_out_by_the_service(embedded_broker, tmp_path, gcp.entry(pool, budget_usd_per_hour=100.0), pool, gcp)
