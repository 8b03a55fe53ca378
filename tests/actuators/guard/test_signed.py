"""Only what a known key has signed, within its scope, is a decision; judged at the platform."""

import base64
from collections.abc import Callable
from pathlib import Path

import msgspec
from tests.actuators.loop import FilePlatform, config_for, of, publish, read_all, running, statuses_of, wait_for
from tests.actuators.samples import NOW, S, preempt, scale, spec

from flyball_actuators.platforms import Rejected
from flyball_contracts.cloudevents import header
from flyball_contracts.codec import Message, record_message
from flyball_contracts.config import DecisionKey
from flyball_contracts.records import AnyDecision, SubjectState, WorkloadSpec
from flyball_contracts.security.signing import Signer, new_key
from flyball_contracts.topics import DEAD_LETTERS, DECISIONS

Unique = Callable[[str], str]


def signed(decision: AnyDecision, signer: Signer) -> Message:
    """As a worker sends it."""
    message = record_message(decision, "/test")
    return message._replace(headers=[*message.headers, signer.header(message.topic, message.value)])


def key(signer: Signer, **scope: tuple[str, ...]) -> DecisionKey:
    return DecisionKey(public=base64.b64encode(signer.public).decode(), **scope)  # type: ignore[arg-type]


def reasons(bootstrap: str, id_: str) -> list[str]:
    """Why messages with a decision's id went to the dead letters."""
    return [
        header(headers, "__connect.errors.exception.message") or ""
        for value, headers in read_all(bootstrap, DEAD_LETTERS.name)
        if f'"id":"{id_}"'.encode() in (value or b"")
    ]


def test_what_nobody_may_send_never_reaches_the_platform(bootstrap: str, unique: Unique, tmp_path: Path) -> None:
    driver = FilePlatform(tmp_path / "effects")
    worker, narrow, unknown = (new_key(tmp_path / f"{name}.pem") for name in ("worker", "narrow", "stranger"))
    keys = (key(worker), key(narrow, types=("Preempt",), workloads=("train-*",)))
    config = config_for(bootstrap, unique("actuator"), mode="live", ledger=str(tmp_path / "ledger"), keys=keys)
    forged = record_message(scale("s1", after=9), "/test")
    changed = signed(scale("s2"), worker)._replace(value=forged.value.replace(b'"s1"', b'"s2"'))
    publish(bootstrap, spec())
    with running(config, driver) as actuator:
        publish(
            bootstrap,
            forged,
            changed,
            signed(scale("s3"), unknown),
            signed(scale("s4"), narrow),
            signed(preempt("s5"), narrow),
            signed(scale("s1"), worker),  # the real one: what was forged under its id had no say
        )
        wait_for(lambda: statuses_of(bootstrap, "s1")[-1:] == ["done"], "the signed decision")
        wait_for(lambda: len(reasons(bootstrap, "s5")) == 1, "the dead letters")
    assert actuator.report is not None
    assert actuator.report.undecodable == 5
    assert driver.effects() == ["s1"]
    for id_, words in (
        ("s1", "flyball-signature"),
        ("s2", "changed on the way"),
        ("s3", "none of actuator.keys"),
        (
            "s4",
            "for types Preempt, and this decision is of type Scale; sign it with another key, or widen actuator.key",
        ),
        ("s5", "for workloads train-*, and this decision is about 'chat'"),
    ):
        assert words in reasons(bootstrap, id_)[0], id_
        assert id_ == "s1" or statuses_of(bootstrap, id_) == []


class Renting(FilePlatform):
    """Observes while the owner gives the workload to another tenant."""

    def __init__(self, effects: Path, change: Callable[[], None]) -> None:
        super().__init__(effects)
        self._change = change

    def observe(self, decision: AnyDecision) -> SubjectState | Rejected:
        self._change()
        return super().observe(decision)


def of_tenant(tenant: str, workload: str = "chat") -> WorkloadSpec:
    return msgspec.structs.replace(spec(workload), tenant=tenant)


def test_a_key_is_for_tenants_and_platforms(bootstrap: str, unique: Unique, tmp_path: Path) -> None:
    driver = FilePlatform(tmp_path / "effects")
    research, elsewhere, both = (new_key(tmp_path / f"{name}.pem") for name in ("research", "elsewhere", "both"))
    keys = (
        key(research, tenants=("research", "lab-*")),
        key(elsewhere, platforms=("slurm", "aws")),
        key(both, tenants=("research",), platforms=("file",)),
    )
    config = config_for(bootstrap, unique("actuator"), mode="live", ledger=str(tmp_path / "ledger"), keys=keys)
    publish(bootstrap, of_tenant("research"), of_tenant("prod", "db"), of_tenant("lab-7", "late"))
    with running(config, driver):
        publish(
            bootstrap,
            signed(scale("t1", workload="db"), research),
            signed(scale("t2", workload="ghost"), research),
            signed(scale("t3"), elsewhere),
            signed(scale("t4"), research),
            signed(scale("t5", workload="late"), both),
        )
        wait_for(lambda: statuses_of(bootstrap, "t4")[-1:] == ["done"], "the signed decision")
        wait_for(lambda: len(reasons(bootstrap, "t5")) == 1, "the dead letters")
        publish(bootstrap, of_tenant("lab-1", "new"), signed(scale("t6", workload="new"), research))
        publish(bootstrap, signed(scale("t7", workload="late", time_ns=NOW + S), research))
        wait_for(lambda: statuses_of(bootstrap, "t7")[-1:] == ["done"], "the last one")
        wait_for(lambda: statuses_of(bootstrap, "t6")[-1:] == ["done"], "that of the new workload")
    assert sorted(driver.effects()) == ["t4", "t6", "t7"]
    for id_, words in (
        (
            "t1",
            "for tenants research, lab-*, and this decision is about 'db' of tenant 'prod'; sign it with another key",
        ),
        ("t2", "about 'ghost' of no tenant; sign it with another key, or widen actuator.keys[0].tenants"),
        ("t3", "for platforms slurm, aws, and this decision is one that file carries out"),
        ("t5", "for tenants research, and this decision is about 'late' of tenant 'lab-7'"),
    ):
        assert words in reasons(bootstrap, id_)[0], id_
        assert statuses_of(bootstrap, id_) == []


def test_a_workload_that_got_another_tenant_is_left_alone(bootstrap: str, unique: Unique, tmp_path: Path) -> None:
    driver = Renting(tmp_path / "effects", lambda: publish(bootstrap, of_tenant("prod")))
    research = new_key(tmp_path / "research.pem")
    keys = (key(research, tenants=("research",)),)
    config = config_for(bootstrap, unique("actuator"), mode="live", ledger=str(tmp_path / "ledger"), keys=keys)
    publish(bootstrap, of_tenant("research"))
    with running(config, driver):
        publish(bootstrap, signed(scale("t8"), research))
        wait_for(lambda: statuses_of(bootstrap, "t8")[-1:] == ["refused not_allowed"], "the refusal")
    assert driver.effects() == []
    assert "about 'chat' of tenant 'prod'" in of(bootstrap, "t8", "refused").detail


def test_without_keys_all_is_taken(bootstrap: str, unique: Unique, tmp_path: Path) -> None:
    driver = FilePlatform(tmp_path / "effects")
    config = config_for(bootstrap, unique("actuator"), mode="live", ledger=str(tmp_path / "ledger"))
    publish(bootstrap, spec())
    with running(config, driver):
        publish(bootstrap, scale("s6"))
        wait_for(lambda: statuses_of(bootstrap, "s6")[-1:] == ["done"], "the decision")
    assert driver.effects() == ["s6"]
    assert DECISIONS.name
