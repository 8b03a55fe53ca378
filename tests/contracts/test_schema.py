from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, given, settings, strategies as st
from tests.contracts.strategies import records, samples
from tests.contracts.wire.test_golden import frame_of

from flyball_contracts.codec import RECORD_TYPES, frame_message, record_message
from flyball_contracts.metrics import LAYOUTS
from flyball_contracts.schema import asyncapi, files, json_schemas, stale, write
from flyball_contracts.topics import TOPICS

INFRA = Path(__file__).resolve().parents[2] / "infra"
SCHEMAS = json_schemas()
DOCUMENT = asyncapi()
VALIDATORS: dict[str, Any] = {name: jsonschema.Draft202012Validator(schema) for name, schema in SCHEMAS.items()}


def test_the_generated_files_are_up_to_date() -> None:
    assert stale(INFRA) == [], "run: flyball schema --write infra"


def test_writing_is_deterministic_and_removes_what_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "asyncapi.yaml" in write(tmp_path)
    assert write(tmp_path) == []
    monkeypatch.setattr(files, "contents", cache(files.contents))  # it was the same each time
    assert stale(tmp_path) == []
    (tmp_path / "schemas" / "Gone.json").write_text("{}")
    (tmp_path / "schemas" / "Scale.json").write_text("{}")
    (tmp_path / "asyncapi.yaml").unlink()
    assert stale(tmp_path) == write(tmp_path) == ["asyncapi.yaml", "schemas/Gone.json", "schemas/Scale.json"]
    assert stale(tmp_path) == []
    assert yaml.load((tmp_path / "asyncapi.yaml").read_text(), Loader=yaml.CSafeLoader) == DOCUMENT


@pytest.mark.parametrize("name", RECORD_TYPES)
def test_a_schema_is_valid_and_tells_samples_from_rubbish(name: str) -> None:
    schema = SCHEMAS[name]
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"urn:flyball:schema:v1:{name}"
    assert schema["title"] == name
    assert schema["description"]
    for record in samples()[name]:
        value = msgspec.json.decode(record_message(record, "/test").value)
        VALIDATORS[name].validate(value)
        VALIDATORS[name].validate({**value, "added_later": 1})
        for required in schema["required"]:
            with pytest.raises(jsonschema.ValidationError):
                VALIDATORS[name].validate({k: v for k, v in value.items() if k != required})
        for field in schema["properties"]:
            with pytest.raises(jsonschema.ValidationError):
                VALIDATORS[name].validate({**value, field: [[[]]]})


@given(records)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_is_sent_fits_its_schema(record: Any) -> None:
    VALIDATORS[type(record).__name__].validate(msgspec.json.decode(record_message(record, "/test").value))


def draft7(schema: Any) -> Any:
    """Validator of what AsyncAPI calls a schema object."""
    return jsonschema.Draft7Validator(schema)


def nodes(tree: Any, path: str = "#") -> Iterator[tuple[str, Any]]:
    yield path, tree
    if isinstance(tree, dict):
        for key, value in tree.items():  # pyright: ignore[reportUnknownVariableType]
            yield from nodes(value, f"{path}/{key}")
    elif isinstance(tree, list):
        for i, value in enumerate(tree):  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
            yield from nodes(value, f"{path}/{i}")


def resolve(ref: str) -> Any:
    assert ref.startswith("#/"), f"{ref} leads out of the document"
    found: Any = DOCUMENT
    for part in ref[2:].split("/"):
        found = found[part.replace("~1", "/").replace("~0", "~")]
    return found


def test_every_reference_leads_somewhere_in_the_document() -> None:
    refs: list[str] = [tree for path, tree in nodes(DOCUMENT) if path.endswith("/$ref")]
    assert len(refs) > 60
    for ref in refs:
        assert isinstance(resolve(ref), dict)


def test_the_document_has_what_asyncapi_3_requires() -> None:
    assert DOCUMENT["asyncapi"] == "3.0.0"
    assert set(DOCUMENT) <= {
        "asyncapi",
        "id",
        "info",
        "servers",
        "defaultContentType",
        "channels",
        "operations",
        "components",
    }
    assert DOCUMENT["info"]["title"]
    assert DOCUMENT["info"]["version"]
    for server in DOCUMENT["servers"].values():
        assert server["host"]
        assert server["protocol"] == "kafka"
    for operation in DOCUMENT["operations"].values():
        assert operation["action"] in ("send", "receive")
        assert set(operation["channel"]) == {"$ref"}
        assert operation["channel"]["$ref"].startswith("#/channels/")
    allowed = {
        "name", "title", "summary", "description", "contentType", "headers", "payload", "traits", "bindings",
        "x-flyball-layouts",
    }  # fmt: skip
    for message in DOCUMENT["components"]["messages"].values():
        assert set(message) <= allowed
        assert message["payload"]
        assert message["contentType"]


def test_every_topic_is_a_channel_with_its_kafka_binding() -> None:
    channels = {channel["address"]: channel for channel in DOCUMENT["channels"].values()}
    assert set(channels) == set(TOPICS)
    for name, topic in TOPICS.items():
        binding = channels[name]["bindings"]["kafka"]
        assert binding["bindingVersion"] == "0.5.0"
        assert (binding["topic"], binding["partitions"]) == (name, topic.partitions)
        config: dict[str, Any] = {**binding["topicConfiguration"]}
        config["cleanup.policy"] = ",".join(config["cleanup.policy"])
        reported = {
            key: value for key, value in topic.config.items() if key != "compression.type"
        }  # no word for it there
        assert {key: str(value) for key, value in config.items()} == reported
        for reference in channels[name]["messages"].values():
            key = resolve(reference["$ref"])["bindings"]["kafka"]["key"]
            assert key["type"] == "string"
            assert key["description"]
        used = [o["action"] for o in DOCUMENT["operations"].values() if resolve(o["channel"]["$ref"]) is channels[name]]
        assert {"send", "receive"} <= set(used), f"{name} has no sender or no receiver"


def test_every_record_type_is_a_message_of_its_topic() -> None:
    for name, (full, _) in samples().items():
        message = DOCUMENT["components"]["messages"][name]
        sent = record_message(full, "/test")
        assert name in next(c for c in DOCUMENT["channels"].values() if c["address"] == sent.topic)["messages"]
        assert message["name"] == f"io.flyball.{name}"
        (trait,) = message["traits"]
        headers = resolve(resolve(trait["$ref"])["headers"]["$ref"])
        draft7(headers).validate({key: value.decode() for key, value in sent.headers})
        payload = {"$ref": message["payload"]["$ref"], "components": DOCUMENT["components"]}
        validator = draft7(payload)
        value = msgspec.json.decode(sent.value)
        validator.validate(value)
        with pytest.raises(jsonschema.ValidationError):
            validator.validate({})


@given(st.sampled_from(sorted(LAYOUTS)))
@settings(max_examples=5, deadline=None)
def test_the_frame_is_described_place_by_place(schema: int) -> None:
    message = DOCUMENT["components"]["messages"]["Frame"]
    places = msgspec.msgpack.decode(frame_message(frame_of(schema)).value)
    draft7(message["payload"]).validate(places)
    for i, wrong in enumerate([99, "", 0, -1, -1, -1, -1, 0, -1, 5000]):
        with pytest.raises(jsonschema.ValidationError):
            draft7(message["payload"]).validate([*places[:i], wrong, *places[i + 1 :]])
    layout = LAYOUTS[schema]
    described = message["x-flyball-layouts"][layout.name]
    assert [m["name"] for m in described["metrics"]] == [m.name for m in layout.metrics]
    for i, metric in enumerate(layout.metrics):
        assert f"| {i} | `{metric.key}` | {metric.unit} | {metric.instrument} |" in message["description"]
