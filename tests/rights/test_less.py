"""With one right less a command stops at its start, before anything is done, and says which right lacks."""

import logging
import time

import pytest
from tests.rights.ground import END_S, ROLES, Ground

from flyball_contracts.errors import ConfigError
from flyball_contracts.kafka import open_producer
from flyball_contracts.kafka.preflight import preflight
from flyball_contracts.security.rights import Right
from flyball_contracts.topics import TELEMETRY

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def settled(ground: Ground, role: str, right: Right | None) -> None:
    """The broker applies a change of its rights soon after it has answered."""
    ends_s = time.monotonic() + END_S
    while (bool(refused := refusal(ground, role)) != (right is not None)) and time.monotonic() < ends_s:
        pass
    if right is None:
        assert refused == ""
    else:
        assert f"User:flyball-{role} {right.operation} on {right.resource} {right.name};" in refused
        assert f"flyball topics --acls --role {role}" in refused


def refusal(ground: Ground, role: str) -> str:
    try:
        preflight(ground.config(role), role)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("role", ROLES)
def test_each_right_is_needed(ground: Ground, created: None, role: str) -> None:
    settled(ground, role, None)
    for right in ROLES[role].rights():
        if right.operation == "Describe":
            continue  # who may create need not describe each topic: Kafka gives it to nobody else
        ground.take(role, right)
        settled(ground, role, right)
        ground.give(role, right)
        settled(ground, role, None)


def test_an_actuator_that_cannot_answer_does_not_begin(ground: Ground, created: None) -> None:
    right = Right("Write", "topic", "flyball.outcomes.v1")
    ground.take("actuator", right)
    settled(ground, "actuator", right)
    try:
        code, errors = ground.run("actuator", "actuate")
    finally:
        ground.give("actuator", right)
    assert code == 2
    assert len(errors) == 1, errors
    assert "User:flyball-actuator Write on topic flyball.outcomes.v1" in errors[0]


WRONG: dict[str, tuple[dict[str, str], str, str]] = {
    "password": ({}, "", "check sasl.username, and the file of sasl.password"),
    "host": ({}, "127.0.0.1", "check ssl.ca.location and the host name"),
    "authority": ({"ssl_ca_location": ""}, "", "check ssl.ca.location and the host name"),
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize(("role", "command"), [("agent", "agent"), ("actuator", "actuate")])
def test_a_wrong_log_in_is_one_line(ground: Ground, created: None, what: str, role: str, command: str) -> None:
    other, host, remedy = WRONG[what]
    if what == "password":
        other = {"sasl_password": ground.secret("wrong", "wrong")}
    where = ground.broker.secured_bootstrap
    code, errors = ground.run(role, command, bootstrap=where.replace("localhost", host) if host else "", **other)
    assert code == 2, errors
    assert len(errors) == 1, errors
    assert remedy in errors[0]


def test_a_password_in_the_configuration_is_one_line(ground: Ground, created: None) -> None:
    code, errors = ground.run("actuator", "actuate", sasl_password="secret-actuator")
    assert code == 2, errors
    assert len(errors) == 1, errors
    assert "actuator.yaml:3: kafka.client: sasl.password stands here for all who may read this;" in errors[0]
    assert "write sasl.password: file:/PATH" in errors[0]
    assert "secret-actuator" not in errors[0]


def test_a_password_that_is_not_there_is_one_line(ground: Ground, created: None) -> None:
    code, errors = ground.run("agent", "agent", sasl_password="file:/nowhere/password")
    assert code == 2, errors
    assert len(errors) == 1, errors
    assert "kafka.client: sasl.password: /nowhere/password: No such file or directory; put the secret" in errors[0]


def test_a_password_that_changes_is_read_again(ground: Ground, created: None, caplog: pytest.LogCaptureFixture) -> None:
    settings = ground.client("agent", sasl_password=ground.secret("rotated", "of last year"))
    settings |= {"bootstrap.servers": ground.broker.secured_bootstrap}
    producer = open_producer(settings, logging.getLogger("test"), "agent")
    producer.produce(TELEMETRY.name, b"")
    ends_s = time.monotonic() + END_S
    while "Authentication failed" not in caplog.text and time.monotonic() < ends_s:
        producer.poll(0.1)
    assert len(producer) > 0
    ground.secret("rotated", "secret-agent")
    assert producer.flush(END_S) == 0


def test_a_client_without_tls_is_one_line(ground: Ground, created: None) -> None:
    code, errors = ground.run("actuator", "actuate", security_protocol="PLAINTEXT")
    assert code == 2, errors
    assert len(errors) == 1, errors
    assert "set security.protocol in kafka.client" in errors[0]
