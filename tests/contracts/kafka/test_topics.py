import re

from flyball_contracts.codec import BINDINGS
from flyball_contracts.topics import (
    CONTROLS,
    DEAD_LETTERS,
    DECISIONS,
    INCIDENTS,
    INVENTORY,
    OUTCOMES,
    POOLS,
    RESPONSES,
    RETENTION_MS,
    STATE,
    TELEMETRY,
    TOPICS,
    WORKLOADS,
)


def test_names_are_versioned_and_keys_are_named() -> None:
    assert len(TOPICS) == 16
    for name, topic in TOPICS.items():
        assert name == topic.name
        assert re.fullmatch(r"flyball\.[a-z]+\.v[1-9]", name)
        assert topic.key
        assert topic.holds
        assert topic.partitions >= 1


def test_what_is_a_fact_about_a_key_is_compacted_and_all_else_ends() -> None:
    compacted = {topic.name for topic in TOPICS.values() if topic.retention == "compacted"}
    assert compacted == {INVENTORY.name, WORKLOADS.name, CONTROLS.name, POOLS.name, RESPONSES.name, STATE.name}
    for topic in TOPICS.values():
        if topic.retention == "compacted":
            assert topic.config["cleanup.policy"] == "compact"
            assert "retention.ms" not in topic.config
        else:
            assert topic.config["cleanup.policy"] == "delete"
            assert int(topic.config["retention.ms"]) == RETENTION_MS[topic.retention] > 0


def test_any_client_can_unpack_what_others_subscribe_to() -> None:
    portable = {name for name, topic in TOPICS.items() if topic.config.get("compression.type") == "gzip"}
    assert portable == {DECISIONS.name, OUTCOMES.name, INCIDENTS.name}


def test_cloud_events_are_exactly_the_topics_that_records_are_bound_to() -> None:
    bound = {binding.topic.name for binding in BINDINGS.values()}
    assert bound == {topic.name for topic in TOPICS.values() if topic.cloudevents}
    assert not {TELEMETRY.name, STATE.name, DEAD_LETTERS.name} & bound


def test_topics_that_meet_in_a_worker_are_partitioned_alike() -> None:
    # Both are keyed by node, and the node lane joins them partition by partition.
    assert TELEMETRY.partitions == INVENTORY.partitions
