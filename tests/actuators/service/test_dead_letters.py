"""What is no decision that may be read goes to the dead letters, and the decisions after it are done."""

from collections.abc import Callable

from tests.actuators.loop import (
    PARTITIONS,
    committed,
    config_for,
    outcomes,
    publish,
    read_all,
    running,
    statuses_of,
    wait_for,
)
from tests.actuators.samples import scale

from flyball_contracts.codec import Message, record_message
from flyball_contracts.partitioner import partition_of
from flyball_contracts.topics import DEAD_LETTERS, DECISIONS

Unique = Callable[[str], str]


def test_what_cannot_be_read_goes_to_the_dead_letters(bootstrap: str, unique: Unique) -> None:
    group = unique("actuator")
    good = record_message(scale(), "/test")
    broken = good._replace(value=b"{")
    nameless = Message(DECISIONS.name, b"cell-a/chat", b"{}", [])
    with running(config_for(bootstrap, group)) as actuator:
        publish(bootstrap, broken, nameless, good)
        wait_for(lambda: committed(bootstrap, group) == 3, "the commit")
    letters = dict(read_all(bootstrap, DEAD_LETTERS.name)[i] for i in range(2))
    assert set(letters) == {b"{", b"{}"}
    why = dict(letters[b"{}"])
    assert why["__connect.errors.stage"] == b"flyball-actuator"
    assert b"no ce_type header" in why["__connect.errors.exception.message"]
    assert statuses_of(bootstrap, "d1") == ["planned"]
    assert actuator.report is not None
    assert actuator.report.undecodable == 2


def test_what_cannot_be_read_and_fills_its_message_is_cut_and_what_follows_is_done(
    bootstrap: str, unique: Unique
) -> None:
    group = unique("actuator")
    good = record_message(scale(), "/test")
    large = good._replace(value=b"{" * 999_500)  # with its headers as much as a producer takes
    with running(config_for(bootstrap, group)):
        publish(bootstrap, large, good)
        wait_for(lambda: committed(bootstrap, group) == 2, "the commit")
    ((value, headers),) = read_all(bootstrap, DEAD_LETTERS.name)
    assert value
    assert large.value.startswith(value)
    assert dict(headers)["__connect.errors.cut.value.bytes"] == b"999500"
    assert set(good.headers) <= set(headers)
    assert statuses_of(bootstrap, "d1") == ["planned"]


def test_a_decision_in_anothers_partition_is_refused_and_one_with_anothers_key_is_a_dead_letter(
    bootstrap: str, unique: Unique
) -> None:
    group = unique("actuator")
    right = record_message(scale(), "/test")
    home = partition_of(right.key, PARTITIONS[DECISIONS.name])
    with running(config_for(bootstrap, group)):
        publish(bootstrap, right._replace(partition=1 - home), right._replace(key=b"chat", partition=home))
        wait_for(lambda: committed(bootstrap, group) == 2, "the commit")
    (refused,) = outcomes(bootstrap)
    assert (refused.status, refused.code) == ("refused", "stale")
    assert "whoever sent it does not place keys by murmur2 (partitioner murmur2_random)" in refused.detail
    ((_, headers),) = read_all(bootstrap, DEAD_LETTERS.name)
    why = dict(headers)["__connect.errors.exception.message"]
    assert b"its key must be its cell, 'cell-a', placed by murmur2 (partitioner murmur2_random)" in why
