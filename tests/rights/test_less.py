"""With one right less a command stops at its start, before anything is done, and says which right lacks."""

import time

import pytest
from tests.rights.ground import END_S, ROLES, Ground

from flyball_contracts.errors import ConfigError
from flyball_contracts.kafka.preflight import preflight
from flyball_contracts.security.rights import Right

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
    "password": ({"sasl_password": "wrong"}, "", "check sasl.username and sasl.password"),
    "host": ({}, "127.0.0.1", "check ssl.ca.location and the host name"),
    "authority": ({"ssl_ca_location": ""}, "", "check ssl.ca.location and the host name"),
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize(("role", "command"), [("agent", "agent"), ("actuator", "actuate")])
def test_a_wrong_log_in_is_one_line(ground: Ground, created: None, what: str, role: str, command: str) -> None:
    other, host, remedy = WRONG[what]
    where = ground.broker.secured_bootstrap
    code, errors = ground.run(role, command, bootstrap=where.replace("localhost", host) if host else "", **other)
    assert code == 2, errors
    assert len(errors) == 1, errors
    assert remedy in errors[0]


def test_a_client_without_tls_is_one_line(ground: Ground, created: None) -> None:
    code, errors = ground.run("actuator", "actuate", security_protocol="PLAINTEXT")
    assert code == 2, errors
    assert len(errors) == 1, errors
    assert "set security.protocol in kafka.client" in errors[0]
