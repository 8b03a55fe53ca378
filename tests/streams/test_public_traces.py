"""Importers on the public traces, where the data folder is."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.streams.imported_rows import decoded, same, total, totals

from flyball_contracts.metrics import WORKLOAD
from flyball_streams.importers import IMPORTERS
from flyball_streams.importers.azure_llm_2023 import MODEL_SIZE, PERIOD_S

S = 1_000_000_000
REQUESTS = WORKLOAD.column("flyball.workload.request.rate")
WORK = WORKLOAD.column("flyball.workload.work.rate")
OUTPUT = WORKLOAD.column("flyball.workload.token.rate{kind=output}")


@pytest.fixture(scope="module")
def imported(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The recording of a public trace, made once."""
    folder = tmp_path_factory.mktemp("imported")

    @lru_cache
    def of(name: str) -> Path:
        return IMPORTERS[name].convert(data_dir / name, folder / f"{name}.parquet").path

    return of


def beginning(source: Path, folder: Path) -> Path:
    """A trace that ends after a tenth of its time."""
    folder.mkdir()
    for path in sorted(source.glob("*.parquet")):
        table = pl.read_parquet(path)
        time = pl.col("t_s" if "t_s" in table.columns else "timestamp")
        table.filter(time <= time.min() + (time.max() - time.min()) / 10).write_parquet(folder / path.name)
    return folder


@pytest.mark.parametrize("name", ["alibaba_gentd26", "azure_llm_2023", "servegen"])
def test_a_public_trace_is_imported_alike_twice(data_dir: Path, tmp_path: Path, name: str) -> None:
    source = beginning(data_dir / name, tmp_path / name)
    first, again = (IMPORTERS[name].convert(source, tmp_path / f"{n}.parquet") for n in range(2))
    assert first.messages == sum(first.topics.values()) > 30
    assert first.path.read_bytes() == again.path.read_bytes()


def test_alibaba_work_is_the_duty_of_all_pods(imported: Callable[[str], Path], data_dir: Path) -> None:
    source = data_dir / "alibaba_gentd26"
    records = decoded(imported("alibaba_gentd26"))
    found = total(records, WORK)
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


def test_azure_requests_are_all_there(imported: Callable[[str], Path], data_dir: Path) -> None:
    source = data_dir / "azure_llm_2023"
    records = decoded(imported("azure_llm_2023"))
    table = pl.read_parquet(source / "requests.parquet")
    work = MODEL_SIZE * float((table["context_tokens"] / 12_000 + table["generated_tokens"] / 1_600).sum())
    expected = {REQUESTS: len(table), OUTPUT: int(table["generated_tokens"].sum()), WORK: work}
    for col, value in expected.items():
        assert PERIOD_S * sum(total(records, col).values()) == pytest.approx(value, rel=1e-6)
    assert set(np.diff(list(total(records, WORK))).tolist()) == {PERIOD_S * S}


def test_servegen_load_is_the_sum_over_clients(imported: Callable[[str], Path], data_dir: Path) -> None:
    source = data_dir / "servegen"
    records = decoded(imported("servegen"))
    expected = (
        pl.read_parquet(source / "rates.parquet").group_by("model").agg(pl.col("rate_rps").cast(pl.Float64()).sum())
    )
    found: dict[str, float] = {}
    for (_, workload), part in totals(records, REQUESTS):
        found[workload] = found.get(workload, 0.0) + part
    for model, rate in expected.iter_rows():
        assert found[f"servegen-{model}"] == pytest.approx(rate, rel=1e-5)
