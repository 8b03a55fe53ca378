"""Load of LLM models by client: alibaba/ServeGen.

Files: `rates` (`category, model, client, t_s, rate_rps`), `length_stats` (`category, model, client, t_s, field, mean`).

Mapping and assumptions:

- *Time.* The trace counts seconds from an unnamed start; it is put at 2024-01-01 00:00 UTC. The day of the week is
  therefore arbitrary. The rates of the window `[t - 600 s, t)` are recorded at `t`.
- *Workloads.* One for each model, on a synthetic fleet (see `serving`): the sum over its clients. A window in which
  *all* clients of a model have the rate 0 is taken as an outage of the measurement: NaN.
- *Tokens* are rate times mean length, summed over clients, where lengths are published: per client and 6-h window, the
  latest known window standing in for a missing one, never a later one. Clients without lengths are taken to have the
  mean of the others. Prompt tokens are `input_tokens`, or else all `*_tokens` fields that are not generated; generated
  tokens are `output_tokens`, or else the sum of reasoning and answer tokens.
- *Work* is replica time; a replica can do 1.0 per second. It is taken to be one GPU with an 8B model (12,000 prompt or
  1,600 generated tokens per second), whatever the real size of the model: the shape is the trace's, the level is not. A
  model without any lengths has no work rate and no known capacity.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from flyball_contracts.errors import RecordingError
from flyball_streams.importers.base import (
    GENERATED_TOKENS_PER_S,
    PROMPT_TOKENS_PER_S,
    ImportReport,
    Progress,
    RecordingBuilder,
    read_table,
    report_of,
    totals,
)
from flyball_streams.importers.serving import Arrivals, write_serving
from flyball_streams.recording import RecordingWriter

START_S = 1_704_067_200
PERIOD_S = 600
LENGTHS = "length_stats.parquet"
_GENERATED = ("output_tokens", "reason_tokens", "answer_tokens")
_KEYS = {"model": pl.String(), "client": pl.Int64(), "t_s": pl.Int64()}


@dataclass(frozen=True)
class ServeGen:
    """Importer of `servegen`."""

    name: str = "servegen"
    about: str = "request and token rates of LLM models, summed over their clients (10-min windows, up to 14 d)"

    def convert(self, source: Path, out: Path, *, progress: Progress | None = None) -> ImportReport:
        """Convert the trace's folder to a recording; the module describes the mapping."""
        arrivals, left_out = _read(source)
        with RecordingWriter(out, made_by=f"flyball import {self.name}") as writer:
            silent = write_serving(RecordingBuilder(writer, self.name), self.name, arrivals, progress)
        return report_of(writer, {**left_out, "windows without any load: rows are NaN": silent})


def _read(source: Path) -> tuple[Arrivals, dict[str, int]]:
    table = read_table(source, "rates.parquet", _KEYS, {"rate_rps": pl.Float64()})
    rates = table.rows.drop_nulls()
    if rates.is_empty() or not (rates["t_s"] >= 0).all():
        raise RecordingError(f"{source / 'rates.parquet'}: t_s must be seconds from 0 on; fetch it again")
    lengths, dropped = _lengths(source)
    rates = rates.sort("t_s", maintain_order=True)
    if lengths is not None:
        rates = rates.join_asof(lengths, on="t_s", by=["model", "client"], strategy="backward", check_sortedness=False)
    else:
        rates = rates.with_columns(prompt=pl.lit(None, pl.Float64()), generated=pl.lit(None, pl.Float64()))
    rates = rates.sort("model", "client", "t_s")
    models = rates["model"].unique().sort().to_list()
    place = {name: i for i, name in enumerate(models)}
    tick = rates["t_s"].to_numpy() // PERIOD_S
    first, count = int(tick.min()), int(tick.max() - tick.min()) + 1
    at = (tick - first) * len(models) + np.array([place[m] for m in rates["model"].to_list()], np.int64)
    size = count * len(models)
    rps = rates["rate_rps"].to_numpy().astype(np.float64)
    total, _ = totals(at, rps, size)
    requests = np.where(total > 0, total, np.nan)
    prompt = _tokens(at, rps, rates["prompt"], requests, size)
    generated = _tokens(at, rps, rates["generated"], requests, size)
    work = prompt / PROMPT_TOKENS_PER_S + generated / GENERATED_TOKENS_PER_S
    each = [x.reshape(count, len(models)) for x in (requests, prompt, generated, work)]
    left_out = {
        "rates without model, client, time or value": table.dropped + len(table.rows) - len(rates),
        "lengths without model, client, time, field or value": dropped,
    }
    return Arrivals(models, START_S + first * PERIOD_S, PERIOD_S, np.stack(each, axis=2)), left_out


def _lengths(source: Path) -> tuple[pl.DataFrame | None, int]:
    """Mean prompt and generated tokens of each model, client and window; `None` where the trace has no lengths."""
    if not (source / LENGTHS).is_file():
        return None, 0
    table = read_table(source, LENGTHS, {**_KEYS, "field": pl.String()}, {"mean": pl.Float64()})
    means = table.rows.drop_nulls()
    wide = means.group_by(*_KEYS, "field").agg(pl.col("mean").first()).pivot("field", index=list(_KEYS), values="mean")
    fields = sorted(name for name in wide.columns if name.endswith("_tokens"))
    parts = [name for name in fields if name not in _GENERATED]
    prompt = _first_known(wide, "input_tokens", [name for name in parts if name != "input_tokens"])
    generated = _first_known(wide, "output_tokens", [name for name in fields if name in _GENERATED[1:]])
    result = wide.select(*_KEYS, prompt=prompt, generated=generated).sort("t_s", "model", "client")
    return result, table.dropped + len(table.rows) - len(means)


def _first_known(wide: pl.DataFrame, whole: str, parts: list[str]) -> pl.Expr:
    """Return the field `whole` or, if it is absent, the sum of the parts that exist."""
    any_part = pl.any_horizontal([pl.col(name).is_not_null() for name in parts]) if parts else pl.lit(False)
    total = pl.sum_horizontal(parts) if parts else pl.lit(0.0)
    fallback = pl.when(any_part).then(total)
    return pl.coalesce(pl.col(whole), fallback) if whole in wide.columns else fallback


def _tokens(
    at: NDArray[np.int64], rps: NDArray[np.float64], lengths: pl.Series, requests: NDArray[np.float64], size: int
) -> NDArray[np.float64]:
    """Tokens per second of the clients whose lengths are known, scaled to the requests of all clients."""
    mean = lengths.cast(pl.Float64()).fill_null(float("nan")).to_numpy()
    tokens, _ = totals(at, rps * mean, size)
    covered, _ = totals(at, np.where(np.isfinite(mean), rps, np.nan), size)
    return np.where(covered > 0, tokens / np.where(covered > 0, covered, 1.0) * requests, np.nan)
