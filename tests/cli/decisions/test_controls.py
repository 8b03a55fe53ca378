"""``flyball stop``, ``resume``, ``approve`` and ``controls`` as an operator has them."""

from collections.abc import Callable

from tests.actuators.loop import PARTITIONS, publish
from tests.actuators.samples import scale
from tests.brokers.embedded import EmbeddedBroker
from tests.cli.shell import check_refused, flyball

from flyball_cli.controls import standing
from flyball_contracts.config import KafkaConfig
from flyball_contracts.records import Approval, Stop


def test_stopped_listed_and_resumed(embedded_broker: Callable[..., EmbeddedBroker]) -> None:
    bootstrap = embedded_broker(PARTITIONS).bootstrap
    kafka, at = KafkaConfig(bootstrap=bootstrap), ["--bootstrap", bootstrap]
    assert flyball("controls", *at).stdout.strip() == "nothing is stopped, and no approval stands"
    done = flyball("stop", "--cell", "eu-*", "--reason", "cooling [hall 2]", "--by", "an operator", *at)
    assert done.returncode == 0, done.stderr
    assert "flyball resume --cell 'eu-*'" in done.stdout
    (stop,) = standing(kafka)
    assert isinstance(stop, Stop)
    assert (stop.cell, stop.reason, stop.by) == ("eu-*", "cooling [hall 2]", "an operator")
    assert "cooling [hall 2]" in flyball("controls", *at).stdout
    wrong = flyball("resume", *at)
    check_refused(wrong.returncode, wrong.stderr, "cells '*' are not stopped; stopped are 'eu-*'")
    again = flyball("resume", "--cell", "eu-*", *at)
    assert again.returncode == 0, again.stderr
    assert standing(kafka) == []
    missing = flyball("stop", *at)
    check_refused(missing.returncode, missing.stderr, "--reason")


def test_a_decision_is_shown_and_approved(embedded_broker: Callable[..., EmbeddedBroker]) -> None:
    bootstrap = embedded_broker(PARTITIONS).bootstrap
    kafka, at = KafkaConfig(bootstrap=bootstrap), ["--bootstrap", bootstrap]
    decision = scale("d-abcdef")
    publish(bootstrap, decision)
    unasked = flyball("approve", "d-abc", *at)
    check_refused(unasked.returncode, unasked.stderr, "--yes")
    assert standing(kafka) == []
    done = flyball("approve", "d-abc", "--for", "600", "--yes", "--by", "an engineer", *at)
    assert done.returncode == 0, done.stderr
    assert "Scale cell-a/chat: demand rises" in done.stdout
    (approval,) = standing(kafka)
    assert isinstance(approval, Approval)
    assert approval.decision == decision
    assert approval.until_ns - approval.time_ns == 600 * 10**9
    assert "Scale cell-a/chat (d-abcdef)" in flyball("controls", *at).stdout
    unknown = flyball("approve", "nothing", "--yes", *at)
    check_refused(unknown.returncode, unknown.stderr, "'nothing'", "--since")


def test_a_broker_without_the_topic(embedded_broker: Callable[..., EmbeddedBroker]) -> None:
    empty = flyball("controls", "--bootstrap", embedded_broker({}).bootstrap)
    check_refused(empty.returncode, empty.stderr, "flyball.controls.v1", "flyball topics --create")
