"""Importers on small traces with names of our own."""

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, strategies as st
from tests.streams.imported_rows import column, decoded, frames, played, same, total

from flyball_contracts.errors import RecordingError
from flyball_contracts.frame import Frame
from flyball_contracts.metrics import GPU, WORKLOAD
from flyball_contracts.records import DemandTick, Inventory, Scale, Signal, WorkloadSpec
from flyball_streams.importers import IMPORTERS, AlibabaGentd26, AzureLlm2023
from flyball_streams.importers.alibaba_gentd26 import LOST_TICKS, allocated
from flyball_streams.importers.azure_llm_2023 import MODEL_SIZE
from flyball_streams.importers.base import RecordingBuilder
from flyball_streams.importers.serving import Arrivals, Size, size_of, write_serving
from flyball_streams.recording import Recording, RecordingWriter

S = 1_000_000_000
UTILIZATION = GPU.column("hw.gpu.utilization{task=general}")
MEMORY = GPU.column("hw.gpu.memory.usage")
REQUESTS = WORKLOAD.column("flyball.workload.request.rate")
WORK = WORKLOAD.column("flyball.workload.work.rate")
INPUT = WORKLOAD.column("flyball.workload.token.rate{kind=input}")
OUTPUT = WORKLOAD.column("flyball.workload.token.rate{kind=output}")
WAIT = WORKLOAD.column("flyball.workload.latency{stat=mean}")
READY = WORKLOAD.column("flyball.workload.ready")
NAN = float("nan")


@pytest.fixture
def alibaba(tmp_path: Path) -> Path:
    """Ten pods at 57 s; `z` comes late, and its duty is impossible; the null is a missing one."""
    folder = tmp_path / "alibaba"
    folder.mkdir()
    pods = [f"p{i}" for i in range(8)]
    rows: list[tuple[str, int, float | None, float]] = [
        (pod, 600 + 57 * k, 10.0 * i, 1000.0) for i, pod in enumerate(pods) for k in range(5)
    ]
    rows += [("q", t_s, duty, 60_000.0) for t_s, duty in ((600, 50.0), (657, 100.0), (714, None))]
    rows += [("z", 771, 101.0, 5.0)]
    schema = {"pod": pl.Categorical(), "t_s": pl.Int64(), "gpu_duty_pct": pl.Float32(), "gpu_mem_mib": pl.Float32()}
    pl.DataFrame(rows, schema=schema, orient="row").write_parquet(folder / "pod_metrics.parquet")
    qps = [("q", 600, 0.5), ("q", 657, 1.5), ("nobody", 600, 9.0), ("q", 99, 9.0)]
    pl.DataFrame(qps, schema=["pod", "t_s", "qps"], orient="row").write_parquet(folder / "qps.parquet")
    waits = [("queue_wait_ms", "q", 600, 100.0), ("queue_wait_ms", "q", 657, 300.0), ("other_ms", "q", 714, 9.0)]
    columns = ["metric", "pod", "t_s", "value"]
    pl.DataFrame(waits, schema=columns, orient="row").write_parquet(folder / "service_metrics.parquet")
    return folder


@pytest.fixture
def azure(tmp_path: Path) -> Path:
    """Two services; `b` starts two seconds after `a`."""
    folder = tmp_path / "azure"
    folder.mkdir()
    start = dt.datetime(2023, 11, 16, 18, 0, 0)
    rows = [
        ("a", start + dt.timedelta(seconds=0.25), 12_000, 1_600),
        ("a", start + dt.timedelta(seconds=0.75), 6_000, 0),
        ("a", start + dt.timedelta(seconds=3), 1_200, 160),
        ("b", start + dt.timedelta(seconds=2), 120, 16),
    ]
    columns = ["service", "timestamp", "context_tokens", "generated_tokens"]
    pl.DataFrame(rows, schema=columns, orient="row").write_parquet(folder / "requests.parquet")
    return folder


@pytest.fixture
def servegen(tmp_path: Path) -> Path:
    """Model `x`: client 1 has lengths from its second window on, client 2 never; model `y` has none at all."""
    folder = tmp_path / "servegen"
    folder.mkdir()
    rows = [("x", client, 600 * w, rate) for client, rate in ((1, 3.0), (2, 1.0)) for w in range(4)]
    rows = [(m, c, t, 0.0 if t == 1200 else r) for m, c, t, r in rows]
    rows += [("y", 1, 0, 2.0), ("y", 1, 600, 4.0)]
    columns = ["model", "client", "t_s", "rate_rps"]
    pl.DataFrame(rows, schema=columns, orient="row").write_parquet(folder / "rates.parquet")
    lengths = [("x", 1, 600, f, v) for f, v in (("text_tokens", 40.0), ("image_tokens", 60.0), ("output_tokens", 16.0))]
    lengths += [("x", 1, 600, "image_count", 7.0)]
    columns = ["model", "client", "t_s", "field", "mean"]
    pl.DataFrame(lengths, schema=columns, orient="row").write_parquet(folder / "length_stats.parquet")
    return folder


@pytest.fixture
def carbon(tmp_path: Path) -> Path:
    folder = tmp_path / "carbon"
    folder.mkdir()
    start = dt.datetime(2021, 1, 1)
    rows = [
        (zone, start + dt.timedelta(hours=h), None if h == 1 else 100.0 + h, h == 2) for zone in "BA" for h in range(3)
    ]
    columns = ["zone", "time", "lca", "estimated"]
    pl.DataFrame(rows, schema=columns, orient="row").write_parquet(folder / "hourly_2021_2024.parquet")
    return folder


def test_alibaba_maps_each_pod_to_a_device_and_a_replica(alibaba: Path, tmp_path: Path) -> None:
    report = AlibabaGentd26().convert(alibaba, tmp_path / "r.parquet")
    records = decoded(report.path)
    nodes = [r for r in records if isinstance(r, Inventory)]
    pods = [[f"p{i}" for i in range(8)], ["q", "z"], ["q", "z"]]
    assert [[d.id.split("/")[1] for d in n.devices] for n in nodes] == pods
    assert [[a.devices for a in n.allocations] for n in nodes] == [[(i,) for i in range(8)], [(0,)], [(0,), (1,)]]
    assert [(n.epoch, n.time_ns // S) for n in nodes] == [(1, 660), (1, 660), (2, 780)]  # z comes in [720, 780)
    assert {d.memory_bytes for n in nodes for d in n.devices} == {80 * 1024**3}  # 60,000 MiB do not fit in less
    (spec,) = [r for r in records if isinstance(r, WorkloadSpec)]
    assert {a.workload for n in nodes for a in n.allocations} == {spec.workload}
    assert (spec.max_replicas, spec.capacity_per_replica) == (10, 1.0)
    second = nodes[1].node
    assert [f.time_ns // S for f in frames(records, GPU.schema, second)] == [660, 720, 780, 840]
    # Windows [600, 660), [660, 720), [720, 780): q has 50 and 100 % in the first and a null in the second.
    assert same(column(records, UTILIZATION, 0, second, GPU.schema), [0.75, NAN, NAN, NAN])
    assert same(column(records, MEMORY, 0, second, GPU.schema), [60_000 * 2**20, 60_000 * 2**20, NAN, NAN])
    assert same(column(records, WORK, 0, second), [0.75, NAN, NAN, NAN])
    assert same(column(records, REQUESTS, 0, second), [1.0, 0.0, NAN, NAN])  # per sample; no report is no request
    assert same(column(records, WAIT, 0, second), [0.2, NAN, NAN, NAN])
    assert same(column(records, READY, 0, second), [1.0, 1.0, NAN, NAN])
    late = [f.values[:, READY].tolist() for f in frames(records, WORKLOAD.schema, second)][2:]
    assert same(late[0], [NAN, 1.0])
    assert same(late[1], [NAN, NAN])
    assert same(column(records, UTILIZATION, 1, second, GPU.schema), [NAN] * 4)  # 101 % is no duty
    assert same(column(records, REQUESTS, 3, nodes[0].node), [NAN] * 4)  # this pod reports no requests at all
    assert same(column(records, UTILIZATION, 3, nodes[0].node, GPU.schema), [0.3] * 4)
    assert report.left_out == {
        "duties outside 0..100 %": 1,
        "request rates of pods or times without GPU telemetry": 2,
    }


def test_every_other_metric_is_missing(alibaba: Path, tmp_path: Path) -> None:
    records = decoded(AlibabaGentd26().convert(alibaba, tmp_path / "r.parquet").path)
    for schema, known in ((GPU.schema, {UTILIZATION, MEMORY}), (WORKLOAD.schema, {REQUESTS, WORK, WAIT, READY})):
        seen = np.isfinite(np.concatenate([f.values for f in frames(records, schema)])).any(axis=0)
        assert set(np.flatnonzero(seen).tolist()) == known


def test_frames_count_up_without_holes_and_follow_their_inventory(alibaba: Path, tmp_path: Path) -> None:
    records = decoded(AlibabaGentd26(period_s=57).convert(alibaba, tmp_path / "r.parquet").path)
    held: dict[str, Inventory] = {}
    seqs: dict[str, list[int]] = {}
    for r in records:
        if isinstance(r, Inventory):
            assert r.boot_id == "trace"
            assert r.epoch == (held[r.node].epoch + 1 if r.node in held else 1)
            held[r.node] = r
        elif isinstance(r, Frame):
            now = held[r.node]
            assert (r.boot_id, r.epoch, r.inventory_epoch, r.period_ns) == ("trace", 1, now.epoch, 57 * S)
            assert r.rows == len(now.devices if r.schema == GPU.schema else now.allocations)
            seqs.setdefault(r.node, []).append(r.seq)
    assert seqs
    assert all(found == list(range(len(found))) for found in seqs.values())


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=30), st.integers(1, 6))
def test_a_pod_runs_until_it_is_silent_for_long_enough(rows: list[list[bool]], lost: int) -> None:
    present = np.array(rows, bool)
    found = allocated(present, lost)
    for pod in range(3):
        silent = lost
        for i, row in enumerate(rows):
            silent = 0 if row[pod] else silent + any(row)  # windows without anyone are not counted
            assert found[i, pod] == (silent < lost)


@pytest.fixture
def coming_and_going(tmp_path: Path) -> Path:
    """Nine pods, a sample a minute: `p0` to `p6` always, `r` and (alone on its node) `s` as `present` says."""
    folder = tmp_path / "pods"
    folder.mkdir()
    present = {"r": "111....11.....1..", "s": "....11......1...."}
    rows = [(p, 600 + 60 * i, 50.0, 1.0) for p in [f"p{k}" for k in range(7)] for i in range(17)]
    rows += [(p, 600 + 60 * i, 50.0, 1.0) for p, when in present.items() for i, x in enumerate(when) if x == "1"]
    columns = ["pod", "t_s", "gpu_duty_pct", "gpu_mem_mib"]
    pl.DataFrame(rows, schema=columns, orient="row").write_parquet(folder / "pod_metrics.parquet")
    pl.DataFrame([("p0", 600, 1.0)], schema=["pod", "t_s", "qps"], orient="row").write_parquet(folder / "qps.parquet")
    service = [("queue_wait_ms", "p0", 600, 1.0)]
    columns = ["metric", "pod", "t_s", "value"]
    pl.DataFrame(service, schema=columns, orient="row").write_parquet(folder / "service_metrics.parquet")
    return folder


def test_alibaba_pods_come_and_go(coming_and_going: Path, tmp_path: Path) -> None:
    path = AlibabaGentd26().convert(coming_and_going, tmp_path / "r.parquet").path
    records = decoded(path)
    # r is missing for four windows, which is forgiven, then for five; the window that starts at 600 ends at 660.
    assert LOST_TICKS == 5
    by_node: dict[str, list[tuple[int, int, list[str]]]] = {}
    for r in records:
        if isinstance(r, Inventory):
            replicas = [a.replica for a in r.allocations if not a.replica.startswith("p")]
            by_node.setdefault(r.node[-4:], []).append((r.epoch, (r.time_ns // S - 660) // 60, replicas))
            assert len(r.devices) == (8 if r.node.endswith("0000") else 1)  # a device stays, free
    assert by_node == {
        "0000": [(1, 0, ["r"]), (2, 13, []), (3, 14, ["r"])],
        "0001": [(1, 0, []), (2, 4, ["s"]), (3, 10, []), (4, 12, ["s"])],
    }
    counts = [f.rows for f in frames(records, WORKLOAD.schema, "node-0001")]
    assert counts == [0] * 4 + [1] * 6 + [0] * 2 + [1] * 5
    gap = frames(records, WORKLOAD.schema, "node-0000")[4].values[7]
    assert np.isnan(gap).all()  # missing, not gone
    made = played(path)
    seen: dict[int, int] = {}
    for published in made:
        if isinstance(published, DemandTick):
            seen[published.tick.index] = seen.get(published.tick.index, 0) + sum(d.replicas for d in published.demands)
    running = [7 + (i not in (13,)) + (4 <= i < 10 or i >= 12) for i in range(17)]
    assert [seen[t] for t in sorted(seen)] == running[: len(seen)]
    assert len(seen) > 14
    kinds = {"DemandTick", "Forecast", "Incident", "ProposalTick", "Scale", "Profile", "WorkloadProfile"}
    assert {type(r).__name__ for r in made} <= kinds


def test_azure_counts_requests_tokens_and_work(azure: Path, tmp_path: Path) -> None:
    records = decoded(AzureLlm2023(period_s=1).convert(azure, tmp_path / "r.parquet").path)
    start_s = int(dt.datetime(2023, 11, 16, 18, tzinfo=dt.UTC).timestamp())
    assert list(total(records, REQUESTS)) == [(start_s + i) * S for i in (1, 2, 3, 4)]
    assert same([*total(records, REQUESTS, "-a").values()], [2, 0, 0, 1])
    assert same([*total(records, INPUT, "-a").values()], [18_000, 0, 0, 1_200])
    assert same([*total(records, OUTPUT, "-a").values()], [1_600, 0, 0, 160])
    assert same([*total(records, WORK, "-a").values()], [MODEL_SIZE * x for x in (2.5, 0, 0, 0.2)])
    # Service a has 10 replicas (2.7 / 4 * 8.75 at 60 %), b one: row 2 of the second node.
    assert same(column(records, REQUESTS, 2, "node-0001"), [NAN, NAN, 1, NAN])  # before and after, nobody counted
    assert same(column(records, READY, 2, "node-0001"), [NAN, NAN, 1, NAN])
    assert same(column(records, READY, 1, "node-0001"), [1, 1, 1, 1])  # without a request it still stands ready
    coarse = decoded(AzureLlm2023(period_s=2).convert(azure, tmp_path / "r.parquet").path)
    assert same([*total(coarse, REQUESTS, "-a").values()], [1, 0.5])


def test_time_goes_on_between_services(azure: Path, tmp_path: Path) -> None:
    table = pl.read_parquet(azure / "requests.parquet").filter(pl.col("service") == "a")
    later = table.with_columns(pl.lit("b").alias("service"), pl.col("timestamp") + pl.duration(seconds=7))
    pl.concat([table, later]).write_parquet(azure / "requests.parquet")
    report = AzureLlm2023(period_s=1).convert(azure, tmp_path / "r.parquet")
    records = decoded(report.path)
    times = [f.time_ns for f in frames(records, WORKLOAD.schema, "node-0000")]
    assert np.diff(times).tolist() == [S] * 10
    assert np.isnan(frames(records, WORKLOAD.schema, "node-0000")[5].values).all()
    assert report.left_out == {"windows outside of every service: rows are NaN": 3}


def rising(windows: int = 130) -> Arrivals:
    """One service whose work goes from 0.25 to 5.75 and back, and one whose work nobody knows."""
    work = 3.0 - 2.75 * np.cos(np.arange(windows) * 2 * np.pi / 100)
    rates = np.full((windows, 2, 4), np.nan)
    rates[:, 0] = work[:, None] * np.array([4.0, 400.0, 40.0, 1.0])
    rates[:, 1, 0] = 7.0
    return Arrivals(["busy", "unsized"], 1_000_020, 60, rates)


def served(arrivals: Arrivals, path: Path) -> Path:
    with RecordingWriter(path, made_by="test") as writer:
        assert write_serving(RecordingBuilder(writer, "cell"), "cell", arrivals, None) == 0
    return path


def test_a_fleet_holds_the_mean_and_has_room_for_the_peak(tmp_path: Path) -> None:
    records = decoded(served(rising(), tmp_path / "r.parquet"))
    nodes = [r for r in records if isinstance(r, Inventory)]
    running = [(a.workload, a.replica, a.devices) for n in nodes for a in n.allocations]
    # 3.0 at 60 % are five replicas, 5.75 are ten; the service that is not known has one: 11 devices in two nodes.
    busy = [("cell-busy", f"cell-busy-000{i}", (i,)) for i in range(5)]
    assert running == [*busy, ("cell-unsized", "cell-unsized-0000", (5,))]
    assert [len(n.devices) for n in nodes] == [8, 8]
    specs = {r.workload: r for r in records if isinstance(r, WorkloadSpec)}
    found = [(s.max_replicas, s.gpus_per_replica, s.capacity_per_replica) for _, s in sorted(specs.items())]
    assert found == [(10, 1.0, 1.0), (1, 1.0, 0.0)]
    assert {f.schema for f in records if isinstance(f, Frame)} == {WORKLOAD.schema}  # no device is measured
    assert {f.node for f in records if isinstance(f, Frame)} == {nodes[0].node}
    assert same([*total(records, WORK, "busy").values()], rising().rates[:, 0, 3])
    assert size_of(np.array([NAN, 0.0])) == Size(1, 1)
    assert size_of(np.array([NAN])) == Size(1, 1)


def test_a_fleet_is_scaled_out_and_in_with_its_load(tmp_path: Path) -> None:
    made = played(served(rising(), tmp_path / "r.parquet"))
    scales = [r for r in made if isinstance(r, Scale)]
    assert {s.workload for s in scales} == {"cell-busy"}
    work = {1_000_020 * S + (i + 1) * 60 * S: x for i, x in enumerate(rising().rates[:, 0, 3].tolist())}
    for s in scales:
        assert " replicas, 5 run" in s.reason
        assert "room for" not in s.reason
        assert 1 <= s.replicas <= 10
        assert s.expected.gpus == s.replicas - s.replicas_before
        assert s.replicas >= work[s.time_ns - 60 * S] - 1e-3  # the frame of a tick's start is what it saw
    assert min(s.replicas for s in scales) < 5 < max(s.replicas for s in scales) == 10
    assert not [r for r in made if type(r).__name__ in ("Anomaly", "Profile")]


def test_servegen_sums_clients_and_knows_an_outage(servegen: Path, tmp_path: Path) -> None:
    report = IMPORTERS["servegen"].convert(servegen, tmp_path / "r.parquet")
    records = decoded(report.path)
    assert report.left_out == {"windows without any load: rows are NaN": 1}
    times = [(f.time_ns // S) % 86_400 for f in frames(records, WORKLOAD.schema)]
    assert times == [600, 1200, 1800, 2400]  # time goes on in the outage
    assert same(column(records, REQUESTS), [4, 4, NAN, 4])
    # Client 1's lengths stand for all four requests per second, in no window before its own first.
    assert same(column(records, INPUT), [NAN, 400, NAN, 400])
    assert same(column(records, OUTPUT), [NAN, 64, NAN, 64])
    assert same(column(records, WORK), [NAN, 400 / 12_000 + 0.04, NAN, 400 / 12_000 + 0.04])
    assert same(column(records, REQUESTS, 1), [2, 4, NAN, NAN])
    assert same(column(records, WORK, 1), [NAN] * 4)
    specs = {r.workload: r.capacity_per_replica for r in records if isinstance(r, WorkloadSpec)}
    assert specs == {"servegen-x": 1.0, "servegen-y": 0.0}


def test_servegen_without_lengths_is_requests_alone(servegen: Path, tmp_path: Path) -> None:
    (servegen / "length_stats.parquet").unlink()
    records = decoded(IMPORTERS["servegen"].convert(servegen, tmp_path / "r.parquet").path)
    assert same(column(records, REQUESTS), [4, 4, NAN, 4])
    assert same(column(records, WORK), [NAN] * 4)


def test_servegen_takes_whole_fields_before_parts(servegen: Path, tmp_path: Path) -> None:
    lengths = pl.read_parquet(servegen / "length_stats.parquet")
    names = {"image_tokens": "input_tokens", "output_tokens": "answer_tokens"}
    lengths.with_columns(pl.col("field").replace(names)).write_parquet(servegen / "length_stats.parquet")
    records = decoded(IMPORTERS["servegen"].convert(servegen, tmp_path / "r.parquet").path)
    assert same(column(records, INPUT), [NAN, 240, NAN, 240])
    assert same(column(records, OUTPUT), [NAN, 64, NAN, 64])


def test_carbon_hours_are_published_when_they_are_over(carbon: Path, tmp_path: Path) -> None:
    report = IMPORTERS["carbon_electricitymaps"].convert(carbon, tmp_path / "r.parquet")
    found = [r for r in decoded(report.path) if isinstance(r, Signal)]
    assert [s.published_ns for s in found] == sorted(s.published_ns for s in found)
    signals = sorted(found, key=lambda s: (s.published_ns, s.zone))
    expected = [(zone, (g,), estimated) for g, estimated in ((100.0, False), (102.0, True)) for zone in "AB"]
    assert [(s.zone, s.p50, s.estimated) for s in signals] == expected
    assert all(s.published_ns == s.end_ns and not s.forecast for s in signals)
    assert report.left_out == {"hours without a value": 2}


Trace = tuple[str, str, str]
TRACES: list[Trace] = [
    ("alibaba", "alibaba_gentd26", "pod_metrics.parquet"),
    ("azure", "azure_llm_2023", "requests.parquet"),
    ("servegen", "servegen", "rates.parquet"),
    ("carbon", "carbon_electricitymaps", "hourly_2021_2024.parquet"),
]


@pytest.mark.parametrize(("folder", "name", "file"), TRACES)
def test_a_wrong_folder_names_file_column_and_remedy(
    request: pytest.FixtureRequest, tmp_path: Path, folder: str, name: str, file: str
) -> None:
    source: Path = request.getfixturevalue(folder)
    convert: Callable[[Path], object] = lambda path: IMPORTERS[name].convert(path, tmp_path / "r.parquet")  # noqa: E731
    with pytest.raises(RecordingError, match="is not a folder; name the folder that holds"):
        convert(tmp_path / "none")
    table = pl.read_parquet(source / file)
    last = table.columns[-1] if name != "carbon_electricitymaps" else "lca"
    table.drop(last).write_parquet(source / file)
    with pytest.raises(RecordingError, match=rf"{file}: has no column '{last}'.*is it the right trace"):
        convert(source)
    table.with_columns(pl.lit("x").alias(last)).write_parquet(source / file)
    with pytest.raises(RecordingError, match=rf"{file}: column '{last}' is String, not .*; is it the right trace"):
        convert(source)
    table.clear().write_parquet(source / file)
    with pytest.raises(RecordingError, match=rf"{file}: has no usable row"):
        convert(source)
    (source / file).write_bytes(b"not Parquet")
    with pytest.raises(RecordingError, match=rf"{file}: is not a whole Parquet file"):
        convert(source)
    (source / file).unlink()
    with pytest.raises(RecordingError, match=rf"{file}: is missing; name the folder that holds {file}"):
        convert(source)
    assert not (tmp_path / "r.parquet").exists()


@pytest.mark.parametrize(("folder", "name", "file"), TRACES)
def test_rows_in_another_order_give_the_same_messages(
    request: pytest.FixtureRequest, tmp_path: Path, folder: str, name: str, file: str
) -> None:
    source: Path = request.getfixturevalue(folder)
    done: list[tuple[int, int]] = []
    IMPORTERS[name].convert(source, tmp_path / "a.parquet", progress=lambda d, n: done.append((d, n)))
    assert done[-1][0] == done[-1][1] > 0
    pl.read_parquet(source / file).reverse().write_parquet(source / file)
    IMPORTERS[name].convert(source, tmp_path / "b.parquet")
    a, b = (list(Recording.open(tmp_path / x).messages()) for x in ("a.parquet", "b.parquet"))
    assert a == b
