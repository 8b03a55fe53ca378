"""Only what a known key has signed, within its scope, is a decision; judged at the platform."""

import base64
from collections.abc import Callable
from pathlib import Path

from tests.actuators.loop import FilePlatform, config_for, publish, read_all, running, statuses_of, wait_for
from tests.actuators.samples import preempt, scale, spec

from flyball_contracts.cloudevents import header
from flyball_contracts.codec import Message, record_message
from flyball_contracts.config import DecisionKey
from flyball_contracts.records import AnyDecision
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
        ("s4", "may sign Preempt, not Scale"),
        ("s5", "is for workloads train-*, not 'chat'"),
    ):
        assert words in reasons(bootstrap, id_)[0], id_
        assert id_ == "s1" or statuses_of(bootstrap, id_) == []


def test_without_keys_all_is_taken(bootstrap: str, unique: Unique, tmp_path: Path) -> None:
    driver = FilePlatform(tmp_path / "effects")
    config = config_for(bootstrap, unique("actuator"), mode="live", ledger=str(tmp_path / "ledger"))
    publish(bootstrap, spec())
    with running(config, driver):
        publish(bootstrap, scale("s6"))
        wait_for(lambda: statuses_of(bootstrap, "s6")[-1:] == ["done"], "the decision")
    assert driver.effects() == ["s6"]
    assert DECISIONS.name
