"""The dashboards ask only for what the InfluxDB sink writes, and Grafana is provisioned with nothing by hand."""

import json
import re
import types
import typing
from collections import defaultdict
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
import pytest
import yaml

from flyball_contracts.frame import make_frame
from flyball_contracts.metrics import LAYOUTS
from flyball_contracts.records import (
    Anomaly,
    Capacity,
    DemandTick,
    Forecast,
    Inventory,
    Migrate,
    Outcome,
    Plan,
    Preempt,
    Profile,
    Record,
    Scale,
)
from flyball_streams.engine.parameters import ForecastParameters
from flyball_streams.sinks import to_lines

ROOT = Path(__file__).resolve().parents[2]
GRAFANA = ROOT / "infra" / "grafana"
BOARDS: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text()) for path in sorted((GRAFANA / "dashboards").glob("*.json"))
}
PANELS: list[tuple[str, dict[str, Any]]] = [
    (n, p) for n, b in BOARDS.items() for p in b["panels"] if p["type"] != "row"
]
VARIABLES: list[dict[str, Any]] = [v for board in BOARDS.values() for v in board["templating"]["list"]]
STORED: tuple[type[Record], ...] = (
    *(Anomaly, Capacity, DemandTick, Forecast, Migrate, Outcome, Plan, Preempt, Profile, Scale),
)
each_panel = pytest.mark.parametrize(("board", "panel"), PANELS, ids=[f"{n}: {p['title']}" for n, p in PANELS])


class Written(typing.NamedTuple):
    """What the sink writes under one measurement."""

    tags: set[str]
    fields: set[str]


def _filled(kind: Any) -> Any:
    """A value of a type with every field set, so that the sink leaves nothing out."""
    if get_origin(kind) is Literal:
        return get_args(kind)[-1]
    if get_origin(kind) in (typing.Union, types.UnionType):
        return _filled(get_args(kind)[0])
    if get_origin(kind) is tuple:
        return (_filled(get_args(kind)[0]),)
    if get_origin(kind) in (Mapping, dict):
        return {_filled(part): _filled(part) for part in get_args(kind)[:1]}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind(
            **{name: _filled(hint) for name, hint in get_type_hints(kind).items() if name in kind.__struct_fields__}
        )
    return {str: "x", int: 1, float: 1.0, bool: True}[kind]


def _lines() -> list[str]:
    lines: list[str] = []
    for kind in STORED:
        record = _filled(kind)
        if kind is Forecast:
            levels = ForecastParameters().levels
            record = msgspec.structs.replace(record, levels=levels, quantiles=(tuple(1.0 for _ in levels),))
        lines += to_lines(record)
    inventory: Inventory = _filled(Inventory)
    (allocation,) = inventory.allocations
    allocation = msgspec.structs.replace(allocation, devices=(0,))
    inventory = msgspec.structs.replace(inventory, allocations=(allocation,))
    for schema, layout in LAYOUTS.items():
        frame = make_frame(
            np.ones((1, len(layout)), np.float32),
            schema=schema, node="x", boot_id="x", epoch=1, seq=1, time_ns=1, read_ns=1, period_ns=1, inventory_epoch=1,
        )  # fmt: skip
        lines += to_lines(frame, inventory)
    return lines


def _written() -> dict[str, Written]:
    """Tags and fields of each measurement, read off real lines of the sink."""
    found: dict[str, Written] = defaultdict(lambda: Written(set(), set()))
    for line in _lines():
        series, fields, _ = re.split(r"(?<!\\) ", re.sub(r'"(?:[^"\\]|\\.)*"', '""', line))
        measurement, *tags = re.split(r"(?<!\\),", series)
        for names, pairs in (
            (found[measurement].tags, tags),
            (found[measurement].fields, re.split(r"(?<!\\),", fields)),
        ):
            names.update(re.split(r"(?<!\\)=", pair)[0].replace("\\", "") for pair in pairs)
    return dict(found)


WRITTEN = _written()


def _queries(panel: dict[str, Any]) -> list[str]:
    return [target["query"] for target in panel["targets"]]


def _measurement(query: str) -> str:
    (measurement,) = re.findall(r'r\._measurement == "([^"]+)"', query)
    return str(measurement)


def _named_in(query: str) -> set[str]:
    """Columns that the query itself makes, by `rename` or `map`."""
    return set(re.findall(r'_value: "(\w+)"', query)) | set(re.findall(r'"(\w+)": r\._value', query))


def test_the_sink_writes_what_this_test_believes() -> None:
    assert "hw.gpu.utilization{task=general}" in WRITTEN["hw.gpu"].fields
    assert {"cell", "node", "workload", "device"} <= WRITTEN["hw.gpu"].tags
    assert "q0.05" in WRITTEN["flyball.forecast"].fields


@each_panel
def test_queries_ask_for_what_is_written(board: str, panel: dict[str, Any]) -> None:
    assert panel["targets"]
    for query in _queries(panel):
        written = WRITTEN[_measurement(query)]
        assert set(re.findall(r'r\._field == "([^"]+)"', query)) <= written.fields
        tags = set(re.findall(r"(?:exists )?r\.([a-z]\w*)", query))
        assert tags <= written.tags
        columns = {
            name for part in re.findall(r"columns: \[([^]]*)\]", query) for name in re.findall(r'"([^"]+)"', part)
        }
        known = written.tags | written.fields | _named_in(query) | {"_time", "_value", "_field"}
        assert columns <= known


@each_panel
def test_labels_and_overrides_name_what_the_queries_return(board: str, panel: dict[str, Any]) -> None:
    tags: set[str] = set()
    names: set[str] = set()
    for query in _queries(panel):
        written = WRITTEN[_measurement(query)]
        tags |= written.tags
        names |= _named_in(query) | {name for name in written.fields if f'"{name}"' in query}
    assert set(re.findall(r"\$\{__field\.labels\.(\w+)\}", json.dumps(panel))) <= tags | {"_field"}
    for override in panel["fieldConfig"]["overrides"]:
        assert override["matcher"]["options"] in names
        for rule in override["properties"]:
            if rule["id"] == "custom.fillBelowTo":
                assert rule["value"] in names


@each_panel
def test_values_that_are_compared_exist(board: str, panel: dict[str, Any]) -> None:
    literals = {
        "status": set(get_args(get_type_hints(Outcome)["status"])),
        "type": {"Scale", "Migrate", "Preempt"},
    }
    for query in _queries(panel):
        for tag, value in re.findall(r'r\.([a-z]\w*) == "([^"$]+)"', query):
            assert value in literals[tag]


@each_panel
def test_variables_are_declared(board: str, panel: dict[str, Any]) -> None:
    declared = {variable["name"] for variable in BOARDS[board]["templating"]["list"]}
    used = set(re.findall(r"\$\{(\w+)(?::\w+)?\}", "\n".join(_queries(panel))))
    used |= set(re.findall(r"\$(\w+)", panel["title"]))
    assert used <= declared


@pytest.mark.parametrize("variable", VARIABLES, ids=lambda variable: variable["name"])
def test_variables_list_tags_that_are_written(variable: dict[str, Any]) -> None:
    (tag,) = re.findall(r'tag: "(\w+)"', variable["query"])
    assert tag in WRITTEN[_measurement(variable["query"])].tags


def test_quantiles_of_the_fan_are_the_default_levels() -> None:
    asked = {
        name
        for _, panel in PANELS
        for query in _queries(panel)
        for name in re.findall(r'r\._field == "q([\d.]+)"', query)
    }
    assert {float(level) for level in asked} == set(ForecastParameters().levels)


def test_panels_use_the_provisioned_datasource() -> None:
    (source,) = yaml.safe_load((GRAFANA / "provisioning/datasources/influxdb.yaml").read_text())["datasources"]
    assert source["secureJsonData"] == {"token": "$INFLUX_TOKEN"}
    assert source["jsonData"]["version"] == "Flux"
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    assert "INFLUX_TOKEN" in compose["grafana"]["environment"]
    influx = compose["influxdb"]["environment"]
    assert source["jsonData"]["organization"] == influx["DOCKER_INFLUXDB_INIT_ORG"]
    assert source["jsonData"]["defaultBucket"] == influx["DOCKER_INFLUXDB_INIT_BUCKET"]
    used = [panel["datasource"] for _, panel in PANELS] + [variable["datasource"] for variable in VARIABLES]
    used += [target["datasource"] for _, panel in PANELS for target in panel["targets"]]
    assert {(one["type"], one["uid"]) for one in used} == {("influxdb", source["uid"])}


def test_provisioned_folders_are_those_that_compose_mounts() -> None:
    (provider,) = yaml.safe_load((GRAFANA / "provisioning/dashboards/flyball.yaml").read_text())["providers"]
    grafana = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["grafana"]
    mounts: dict[str, str] = {
        volume["target"]: volume["source"] for volume in grafana["volumes"] if isinstance(volume, dict)
    }
    assert mounts[provider["options"]["path"]] == "./infra/grafana/dashboards"
    assert mounts["/etc/grafana/provisioning"] == "./infra/grafana/provisioning"
    home = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert Path(home).stem in BOARDS


def test_boards_and_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    assert set(BOARDS) == {"fleet", "decisions"}
    assert len({board["uid"] for board in BOARDS.values()}) == len(BOARDS)
    for board in BOARDS.values():
        assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
        for one, other in combinations((panel["gridPos"] for panel in board["panels"]), 2):
            beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
            above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
            assert beside or above
            assert one["x"] + one["w"] <= 24
