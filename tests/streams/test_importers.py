"""Importers on small traces with names of our own, and on the public traces where the data folder is."""

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from flyball_contracts.codec import decode_message
from flyball_contracts.errors import RecordingError
from flyball_contracts.frame import Frame
from flyball_contracts.metrics import GPU, WORKLOAD
from flyball_contracts.records import Inventory, Record, Signal, Snapshot, WorkloadSpec
from flyball_streams.importers import IMPORTERS, AlibabaGentd26, AzureLlm2023
from flyball_streams.recording import Recording

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

Decoded = list[Record | Frame | Snapshot]


def decoded(path: Path) -> Decoded:
    return [decode_message(m.topic, m.value, m.headers) for batch in Recording.open(path).messages() for m in batch]


def frames(records: Decoded, schema: int, node: str = "") -> list[Frame]:
    return [r for r in records if isinstance(r, Frame) and r.schema == schema and node in r.node]


def column(records: Decoded, col: int, row: int = 0, node: str = "", schema: int = WORKLOAD.schema) -> list[float]:
    return [float(f.values[row, col]) for f in frames(records, schema, node)]


def same(found: list[float] | NDArray[np.float64], expected: list[float] | NDArray[np.float64]) -> bool:
    return bool(np.allclose(found, expected, rtol=1e-5, atol=1e-7, equal_nan=True))


@pytest.fixture
def alibaba(tmp_path: Path) -> Path:
    """Ten pods at 57 s; `z` comes late, and its duty is impossible; the null is a missing one."""
    folder = tmp_path / "alibaba"
    folder.mkdir()
    pods = [f"p{i}" for i in range(8)]
    rows: list[tuple[str, int, float | None, float]] = [
        (pod, 600 + 57 * k, 10.0 * i, 1000.0) for i, pod in enumerate(pods) for k in range(5)
    ]
    rows += [
        ("q", 600, 50.0, 60_000.0),
        ("q", 657, 100.0, 60_000.0),
        ("q", 714, None, 60_000.0),
        ("z", 771, 101.0, 5.0),
    ]
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
    assert [[d.id.split("/")[1] for d in n.devices] for n in nodes] == [[f"p{i}" for i in range(8)], ["q", "z"]]
    assert [[a.devices for a in n.allocations] for n in nodes] == [[(i,) for i in range(8)], [(0,), (1,)]]
    assert {d.memory_bytes for n in nodes for d in n.devices} == {80 * 1024**3}  # 60,000 MiB do not fit in less
    (spec,) = [r for r in records if isinstance(r, WorkloadSpec)]
    assert {a.workload for n in nodes for a in n.allocations} == {spec.workload}
    assert (spec.max_replicas, spec.capacity_per_replica) == (10, 1.0)
    second = nodes[1].node
    assert [f.time_ns // S for f in frames(records, GPU.schema, second)] == [660, 720, 780]
    # Windows [600, 660), [660, 720), [720, 780): q has 50 and 100 % in the first and a null in the second.
    assert same(column(records, UTILIZATION, 0, second, GPU.schema), [0.75, NAN, NAN])
    assert same(column(records, MEMORY, 0, second, GPU.schema), [60_000 * 2**20, 60_000 * 2**20, NAN])
    assert same(column(records, WORK, 0, second), [0.75, NAN, NAN])
    assert same(column(records, REQUESTS, 0, second), [1.0, 0.0, NAN])  # per sample; no report is no request
    assert same(column(records, WAIT, 0, second), [0.2, NAN, NAN])
    assert same(column(records, READY, 0, second), [1.0, 1.0, NAN])
    assert same(column(records, READY, 1, second), [NAN, NAN, 1.0])
    assert same(column(records, UTILIZATION, 1, second, GPU.schema), [NAN, NAN, NAN])  # 101 % is no duty
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
    first = next(i for i, r in enumerate(records) if isinstance(r, Frame))
    assert not [r for r in records[first:] if not isinstance(r, Frame)]
    for node in {r.node for r in records if isinstance(r, Inventory)}:
        mine = [r for r in records if isinstance(r, Frame) and r.node == node]
        assert [f.seq for f in mine] == list(range(len(mine)))
        assert {(f.boot_id, f.epoch, f.inventory_epoch, f.period_ns) for f in mine} == {("trace", 1, 1, 57 * S)}
    rows = {r.node: len(r.devices) for r in records if isinstance(r, Inventory)}
    assert all(f.rows == rows[f.node] for f in records if isinstance(f, Frame))


def test_azure_counts_requests_tokens_and_work(azure: Path, tmp_path: Path) -> None:
    records = decoded(AzureLlm2023().convert(azure, tmp_path / "r.parquet").path)
    (gateway,) = [r for r in records if isinstance(r, Inventory)]
    assert gateway.devices == ()
    assert [a.workload for a in gateway.allocations] == ["azure_llm_2023-a", "azure_llm_2023-b"]
    start_s = int(dt.datetime(2023, 11, 16, 18, tzinfo=dt.UTC).timestamp())
    assert [f.time_ns for f in frames(records, WORKLOAD.schema)] == [(start_s + i) * S for i in (1, 2, 3, 4)]
    assert same(column(records, REQUESTS), [2, 0, 0, 1])
    assert same(column(records, INPUT), [18_000, 0, 0, 1_200])
    assert same(column(records, OUTPUT), [1_600, 0, 0, 160])
    assert same(column(records, WORK), [2.5, 0, 0, 0.2])
    assert same(column(records, REQUESTS, 1), [NAN, NAN, 1, NAN])  # before and after, nobody counted
    assert same(column(records, READY, 1), [NAN, NAN, 1, NAN])
    coarse = decoded(AzureLlm2023(period_s=2).convert(azure, tmp_path / "r.parquet").path)
    assert same(column(coarse, REQUESTS), [1, 0.5])


def test_servegen_sums_clients_and_knows_an_outage(servegen: Path, tmp_path: Path) -> None:
    report = IMPORTERS["servegen"].convert(servegen, tmp_path / "r.parquet")
    records = decoded(report.path)
    assert report.left_out == {"windows without any load": 1}
    assert [(f.time_ns // S) % 86_400 for f in frames(records, WORKLOAD.schema)] == [600, 1200, 2400]
    assert same(column(records, REQUESTS), [4, 4, 4])
    # Client 1's lengths stand for all four requests per second, in no window before its own first.
    assert same(column(records, INPUT), [NAN, 400, 400])
    assert same(column(records, OUTPUT), [NAN, 64, 64])
    assert same(column(records, WORK), [NAN, 400 / 12_000 + 0.04, 400 / 12_000 + 0.04])
    assert same(column(records, REQUESTS, 1), [2, 4, NAN])
    assert same(column(records, WORK, 1), [NAN, NAN, NAN])
    specs = {r.workload: r.capacity_per_replica for r in records if isinstance(r, WorkloadSpec)}
    assert specs == {"servegen-x": 1.0, "servegen-y": 0.0}


def test_servegen_without_lengths_is_requests_alone(servegen: Path, tmp_path: Path) -> None:
    (servegen / "length_stats.parquet").unlink()
    records = decoded(IMPORTERS["servegen"].convert(servegen, tmp_path / "r.parquet").path)
    assert same(column(records, REQUESTS), [4, 4, 4])
    assert same(column(records, WORK), [NAN, NAN, NAN])


def test_servegen_takes_whole_fields_before_parts(servegen: Path, tmp_path: Path) -> None:
    lengths = pl.read_parquet(servegen / "length_stats.parquet")
    names = {"image_tokens": "input_tokens", "output_tokens": "answer_tokens"}
    lengths.with_columns(pl.col("field").replace(names)).write_parquet(servegen / "length_stats.parquet")
    records = decoded(IMPORTERS["servegen"].convert(servegen, tmp_path / "r.parquet").path)
    assert same(column(records, INPUT), [NAN, 240, 240])
    assert same(column(records, OUTPUT), [NAN, 64, 64])


def test_carbon_hours_are_published_when_they_are_over(carbon: Path, tmp_path: Path) -> None:
    report = IMPORTERS["carbon_electricitymaps"].convert(carbon, tmp_path / "r.parquet")
    found = [r for r in decoded(report.path) if isinstance(r, Signal)]
    assert [s.published_ns for s in found] == sorted(s.published_ns for s in found)
    signals = sorted(found, key=lambda s: (s.published_ns, s.zone))
    assert [(s.zone, s.p50, s.estimated) for s in signals] == [
        ("A", (100.0,), False),
        ("B", (100.0,), False),
        ("A", (102.0,), True),
        ("B", (102.0,), True),
    ]
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


@pytest.mark.parametrize("name", ["alibaba_gentd26", "azure_llm_2023", "servegen"])
def test_a_public_trace_is_imported_alike_twice(data_dir: Path, tmp_path: Path, name: str) -> None:
    for out in ("a.parquet", "b.parquet"):
        report = IMPORTERS[name].convert(data_dir / name, tmp_path / out)
        assert report.messages == sum(report.topics.values())
    a, b = (list(Recording.open(tmp_path / x).messages()) for x in ("a.parquet", "b.parquet"))
    assert a == b


def test_alibaba_work_is_the_duty_of_all_pods(data_dir: Path, tmp_path: Path) -> None:
    source = data_dir / "alibaba_gentd26"
    records = decoded(AlibabaGentd26().convert(source, tmp_path / "r.parquet").path)
    found: dict[int, float] = {}
    for frame in frames(records, WORKLOAD.schema):
        found[frame.time_ns] = found.get(frame.time_ns, 0.0) + float(
            np.nansum(frame.values[:, WORK].astype(np.float64))
        )
    expected = (
        pl.read_parquet(source / "pod_metrics.parquet")
        .with_columns(end=(pl.col("t_s") // 60 + 1) * 60)
        .group_by("pod", "end")
        .agg(pl.col("gpu_duty_pct").cast(pl.Float64()).mean() / 100)
        .group_by("end")
        .agg(pl.col("gpu_duty_pct").sum())
        .sort("end")
    )
    assert sorted(found) == [end * S for end in expected["end"].to_list()]
    assert same([found[t] for t in sorted(found)], expected["gpu_duty_pct"].to_numpy())


def test_azure_requests_are_all_there(data_dir: Path, tmp_path: Path) -> None:
    source = data_dir / "azure_llm_2023"
    records = decoded(AzureLlm2023().convert(source, tmp_path / "r.parquet").path)
    blocks = np.stack([f.values for f in frames(records, WORKLOAD.schema)]).astype(np.float64)
    table = pl.read_parquet(source / "requests.parquet")
    assert np.nansum(blocks[:, :, REQUESTS]) == len(table)
    assert np.nansum(blocks[:, :, OUTPUT]) == table["generated_tokens"].sum()
    work = (table["context_tokens"] / 12_000 + table["generated_tokens"] / 1_600).sum()
    assert np.nansum(blocks[:, :, WORK]) == pytest.approx(work, rel=1e-6)


def test_servegen_load_is_the_sum_over_clients(data_dir: Path, tmp_path: Path) -> None:
    source = data_dir / "servegen"
    records = decoded(IMPORTERS["servegen"].convert(source, tmp_path / "r.parquet").path)
    totals = (
        pl.read_parquet(source / "rates.parquet").group_by("model").agg(pl.col("rate_rps").cast(pl.Float64()).sum())
    )
    blocks = np.stack([f.values for f in frames(records, WORKLOAD.schema)]).astype(np.float64)
    assert same(
        np.nansum(blocks[:, :, REQUESTS], axis=0), totals.sort(pl.col("model").cast(pl.String()))["rate_rps"].to_list()
    )
