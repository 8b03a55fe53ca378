"""Lines keep to the grammar of the line protocol, whatever is in the records."""

import re

import msgspec
import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from flyball_contracts.frame import Frame, make_frame
from flyball_contracts.metrics import GPU, HOST, LAYOUTS, WORKLOAD
from flyball_contracts.records import (
    Allocation,
    Anomaly,
    Decision,
    Demand,
    DemandTick,
    Device,
    Forecast,
    Inventory,
    Migrate,
    Outcome,
    Preempt,
    ProposalTick,
    Record,
    Resources,
    Scale,
    Tick,
    WorkloadSpec,
)
from flyball_streams.sinks import to_lines
from flyball_streams.sinks.line_protocol import Field, line

S = 1_000_000_000
BREAKS = str.maketrans("\n\r\x00", "   ")

# The grammar, strictly: a name is one or more plain characters or escaped specials and does not end in a backslash.
KEY = r"(?:[^,= \\\n\r\x00]|\\[,= ]|\\(?![,= ]))*(?:[^,= \\\n\r\x00]|\\[,= ])"
MEASUREMENT = r"(?:[^, \\\n\r\x00#]|\\[, ]|\\(?![, ]))(?:[^, \\\n\r\x00]|\\[, ]|\\(?![, ]))*"
FLOAT = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"
STRING = r'"(?:[^"\\\n\r\x00]|\\["\\])*"'
FIELD = rf"(?P<k>{KEY})=(?P<v>-?\d+i|{FLOAT}|true|false|{STRING})"
BARE = re.sub(r"\?P<[kv]>", "?:", FIELD)
LINE = re.compile(rf"(?P<m>{MEASUREMENT})(?P<tags>(?:,{KEY}={KEY})*) (?P<fields>{BARE}(?:,{BARE})*) (?P<time>-?\d+)")
TAG = re.compile(rf",({KEY})=({KEY})")
FIELDS = re.compile(FIELD)


def plain(text: str) -> str:
    return re.sub(r"\\([,= ])", r"\1", text)


def value_of(text: str) -> Field:
    if text.startswith('"'):
        return re.sub(r'\\(["\\])', r"\1", text[1:-1])
    if text in ("true", "false"):
        return text == "true"
    return int(text[:-1]) if text.endswith("i") else float(text)


def parse(text: str) -> tuple[str, dict[str, str], dict[str, Field], int]:
    """Read one line, refusing everything that the grammar does not have."""
    found = LINE.fullmatch(text)
    assert found is not None, f"not line protocol: {text!r}"
    tags = {plain(k): plain(v) for k, v in TAG.findall(found["tags"])}
    assert list(tags) == sorted(tags)
    fields = {plain(m["k"]): value_of(m["v"]) for m in FIELDS.finditer(found["fields"])}
    time_ns = int(found["time"])
    assert -(2**63) <= time_ns < 2**63
    return plain(found["m"]), tags, fields, time_ns


def test_the_grammar_check_can_fail() -> None:
    for bad in (
        "m 1", "m f=1", "m, f=1 1", "m,t= f=1 1", "m,t=v f= 1", "m,t=v f=nan 1", "m,t=v f=1,g= 1", "m t=v f=1 1",
        'm f="a"b" 1', 'm f="a\n" 1', "m,t=a\\ f=1 1", "m f=1 1.5", " m f=1 1", "m f=inf 1", "m,t f=1 1", "#m f=1 1",
    ):  # fmt: skip
        with pytest.raises(AssertionError):
            parse(bad)
    assert parse('a\\ b,t\\=k=v\\,w f\\ 1=1i,s="x\\"y" 5') == ("a b", {"t=k": "v,w"}, {"f 1": 1, "s": 'x"y'}, 5)


text = st.text(max_size=8) | st.text(st.sampled_from(',= \\"\n\r\x00a'), max_size=6)
numbers = st.floats(width=32) | st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.none()


@given(
    tags=st.dictionaries(text.filter(bool), text, max_size=4),
    fields=st.dictionaries(text.filter(bool), numbers | text, max_size=4),
    time_ns=st.integers(-(2**63), 2**63 - 1),
)
def test_any_text_gives_a_line_of_the_grammar(tags: dict[str, str], fields: dict[str, Field], time_ns: int) -> None:
    made = line("flyball.test", tags, fields, time_ns)
    stored = {k: v for k, v in fields.items() if v is not None and not (isinstance(v, float) and not np.isfinite(v))}
    if not stored:
        assert made is None
        return
    assert made is not None
    measurement, _, found, at = parse(made)
    assert (measurement, at) == ("flyball.test", time_ns)
    # Two names may differ only in line breaks; the later one counts, as it does on the server.
    assert {k: (type(v), v) for k, v in found.items()} == {clean(k): kept(v) for k, v in stored.items()}


def clean(name: str) -> str:
    """What comes back of a name."""
    name = name.translate(BREAKS)
    return f"{name} " if name.endswith("\\") else name


def kept(value: Field) -> tuple[type, Field]:
    """What comes back of a value: text without line breaks, numbers with nine digits."""
    if isinstance(value, str):
        return str, value.translate(BREAKS)
    return (float, float(f"{value:.9g}")) if isinstance(value, float) else (type(value), value)


@given(st.lists(st.floats(width=32), min_size=2 * len(GPU), max_size=2 * len(GPU)))
def test_a_frames_numbers_come_back_as_they_were(numbers: list[float]) -> None:
    values = np.array(numbers, np.float32).reshape(2, -1)
    lines = [parse(made) for made in to_lines(gpu_frame(values), inventory())]
    finite = [row for row in range(2) if np.isfinite(values[row]).any()]
    assert [tags["device"] for _, tags, _, _ in lines] == [f"n/{row}" for row in finite]
    for row, (measurement, _, fields, at) in zip(finite, lines, strict=True):
        assert (measurement, at) == ("hw.gpu", 7 * S)
        known = {k: values[row, c] for k, c in GPU.columns.items() if np.isfinite(values[row, c])}
        assert {k: np.float32(float(str(v))) for k, v in fields.items()} == known


def gpu_frame(values: NDArray[np.float32], schema: int = GPU.schema) -> Frame:
    counts = {"epoch": 1, "seq": 0, "period_ns": S, "inventory_epoch": 1}
    return make_frame(values, schema=schema, node="n", boot_id="b", time_ns=7 * S, **counts)


def inventory() -> Inventory:
    return Inventory(
        node="n",
        cell="c",
        epoch=1,
        time_ns=0,
        devices=tuple(Device(id=f"n/{i}", model="H 100", memory_bytes=1) for i in range(3)),
        allocations=(
            Allocation(workload="w", replica="r1", devices=(0,)),
            Allocation(workload="v", replica="r2", devices=(2,)),
            Allocation(workload="w", replica="r3", devices=(2,)),
        ),
    )


def test_rows_are_tagged_by_what_the_inventory_says_they_are() -> None:
    def tags(schema: int, rows: int, known: Inventory | None) -> list[dict[str, str]]:
        values = np.ones((rows, len(LAYOUTS[schema])), np.float32)
        return [parse(made)[1] for made in to_lines(gpu_frame(values, schema), known)]

    base = {"cell": "c", "node": "n", "model": "H 100"}
    assert tags(GPU.schema, 4, inventory()) == [
        {**base, "device": "n/0", "workload": "w", "replica": "r1"},
        {**base, "device": "n/1"},
        {**base, "device": "n/2"},  # shared: it belongs to nobody
        {"cell": "c", "node": "n", "row": "3"},
    ]
    assert tags(HOST.schema, 1, inventory()) == [{"cell": "c", "node": "n"}]
    assert tags(WORKLOAD.schema, 1, inventory()) == [{"cell": "c", "node": "n", "workload": "w", "replica": "r1"}]
    assert tags(GPU.schema, 2, None) == [{"node": "n", "row": "0"}, {"node": "n", "row": "1"}]


WHY = 'a "b", c'
COMMAND = {"id": "i", "target": "t", "cell": "c", "workload": "w", "time_ns": 5, "expires_ns": 6}
SAID: dict[str, Field] = {"id": "i", "reason": WHY, "confidence": 0.5, "policy": "p"}


def command(kind: type[Decision], **more: object) -> Decision:
    """One decision; the keywords are checked by msgspec."""
    return msgspec.convert({**COMMAND, **SAID, "type": kind.__name__, **more}, kind)


TICK = Tick(index=4, period_ns=S)
DECISION = {"cell": "c", "workload": "w", "target": "t"}
CASES: list[tuple[Record, str, dict[str, str], dict[str, Field], int]] = [
    (
        DemandTick(
            cell="c",
            source="node/0",
            tick=TICK,
            partition=0,
            demands=(Demand(workload="w", replicas=3, ready=2, devices=4, work_rate=0.5),),
        ),
        "flyball.demand",
        {"cell": "c", "workload": "w", "source": "node/0"},
        {"replicas": 3, "ready": 2, "devices": 4, "work_rate": 0.5},
        5 * S,
    ),
    (
        command(Scale, replicas=4, replicas_before=2, expected={"gpus": 2.0}),
        "flyball.decision",
        {**DECISION, "type": "Scale"},
        {**SAID, "change": "2 → 4 replicas", "replicas": 4, "replicas_before": 2, "expected_gpus": 2.0},
        5,
    ),
    (
        command(Migrate, replica="r", from_node="n", from_device="d"),
        "flyball.decision",
        {**DECISION, "type": "Migrate", "subject": "t#r"},
        {
            **SAID,
            "change": "r: d of n → another node",
            "replica": "r",
            "from_node": "n",
            "from_device": "d",
            "to_node": "",
        },
        5,
    ),
    (
        command(Preempt, replicas=0, replicas_before=2),
        "flyball.decision",
        {**DECISION, "type": "Preempt"},
        {
            **SAID,
            "change": "2 → 0 replicas until there is room",
            "replicas": 0,
            "replicas_before": 2,
            "checkpoint": True,
            "beneficiary": "",
        },
        5,
    ),
    (
        Outcome(
            id="o",
            decision="i",
            type="Scale",
            target="t",
            cell="c",
            workload="w",
            time_ns=9,
            status="refused",
            mode="dry_run",
            driver="d",
            code="rate",
        ),
        "flyball.outcome",
        {**DECISION, "type": "Scale", "status": "refused", "mode": "dry_run", "driver": "d", "code": "rate"},
        {"decision": "i", "detail": "", "answer": ""},
        9,
    ),
    (
        Anomaly(id="a", subject="n/0", cell="c", node="n", time_ns=9, detector="peers", score=0.9),
        "flyball.anomaly",
        {"cell": "c", "node": "n", "subject": "n/0", "detector": "peers"},
        {"score": 0.9},
        9,
    ),
]


@pytest.mark.parametrize(("record", "measurement", "tags", "fields", "time_ns"), CASES)
def test_each_stored_record_is_one_line(
    record: Record, measurement: str, tags: dict[str, str], fields: dict[str, Field], time_ns: int
) -> None:
    (made,) = to_lines(record)
    assert parse(made) == (measurement, tags, fields, time_ns)


def test_decisions_of_one_tick_about_parts_of_one_target_are_points_of_their_own() -> None:
    made = [command(Migrate, replica=name, from_node="n", from_device="") for name in ("r/0", "r/1")]
    made += [command(Scale, replicas_before=1, replicas=2)]
    made += [command(Scale, replicas_before=1, replicas=1, resources=Resources(cpu=2.0))]
    points = {(name, tuple(tags.items()), at) for one in made for name, tags, _, at in map(parse, to_lines(one))}
    assert len(points) == 4


def test_a_forecast_is_written_for_the_time_that_it_is_for() -> None:
    forecast = Forecast(
        id="f",
        subject="w",
        cell="c",
        time_ns=100 * S,
        observed=1.0,
        levels=(0.05, 0.5, 0.95),
        horizon_s=(1.0, 2.0, 3.0, 4.0, 5.0),
        quantiles=tuple((float(h), h + 0.5, h + 0.75) for h in range(5)),
        coverage=(0.05, 0.5, 0.95),
        trusted=True,
        model="damped",
    )
    tags = {"cell": "c", "workload": "w", "model": "damped"}
    for made, h in zip(to_lines(forecast), (0, 2, 4), strict=True):
        fields = {"q0.05": h, "q0.5": h + 0.5, "q0.95": h + 0.75, "trusted": True}
        assert parse(made) == ("flyball.forecast", {**tags, "lead_s": f"{h + 1}"}, fields, (101 + h) * S)


def test_what_is_not_stored_gives_no_line() -> None:
    assert to_lines(ProposalTick(cell="c", source="s", tick=TICK)) == []
    assert to_lines(inventory()) == []
    assert to_lines(WorkloadSpec(workload="w", cell="c", time_ns=1, kind="batch")) == []
    assert to_lines(gpu_frame(np.full((3, len(GPU)), np.nan, np.float32)), inventory()) == []
