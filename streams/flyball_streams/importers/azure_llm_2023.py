"""Requests of Azure's LLM services: AzureLLMInferenceTrace 2023 of Azure/AzurePublicDataset.

File: `requests` (`service, timestamp, context_tokens, generated_tokens`), one row per request.

Mapping and assumptions:

- *Time.* The trace's own, as UTC. Requests of the window `[t - period, t)` are counted and recorded at `t`. The default
  period is `PERIOD_S`, a usual scrape interval: with windows of a second, most are empty and a single request exceeds
  the others, so that counts show arrival times instead of load.
- *Workloads.* One for each service, on a synthetic fleet (see `serving`). Between the first and the last request of a
  service, a window without one had no request: 0. Outside of that time the values are unknown: NaN.
- *Work* is replica time; a replica can do 1.0 per second. The model is not named; the authors of the trace evaluate 70B
  models on it (Patel et al., "Splitwise", ISCA 2024). A replica is taken to be one GPU with such a model, with the
  rates of an 8B model (12,000 prompt or 1,600 generated tokens per second) over the ratio of their sizes. All of a
  request's work is counted when it arrives.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from flyball_streams.importers.base import (
    GENERATED_TOKENS_PER_S,
    NS_PER_S,
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

PERIOD_S = 15
MODEL_SIZE = 70.0 / 8.0
"""Parameters of the model relative to those of the model whose rates are known; the time of a token is proportional."""


@dataclass(frozen=True)
class AzureLlm2023:
    """Importer of `azure_llm_2023`; `period_s` is the length of a tick."""

    period_s: int = PERIOD_S
    name: str = "azure_llm_2023"
    about: str = "requests and tokens of Azure LLM services, as rates (1 h)"

    def convert(self, source: Path, out: Path, *, progress: Progress | None = None) -> ImportReport:
        """Convert the trace's folder to a recording; the module describes the mapping."""
        arrivals, left_out = _read(source, self.period_s)
        with RecordingWriter(out, made_by=f"flyball import {self.name}, period {self.period_s} s") as writer:
            silent = write_serving(RecordingBuilder(writer, self.name), self.name, arrivals, progress)
        return report_of(writer, {**left_out, "windows outside of every service: rows are NaN": silent})


def _read(source: Path, period_s: int) -> tuple[Arrivals, dict[str, int]]:
    number = pl.Float64()
    keys = {"service": pl.String(), "timestamp": pl.Datetime("ns")}
    tokens = {"context_tokens": number, "generated_tokens": number}
    table = read_table(source, "requests.parquet", keys, tokens)
    rows = table.rows.drop_nulls()
    services = rows["service"].unique().sort().to_list()
    place = {name: i for i, name in enumerate(services)}
    tick = rows["timestamp"].dt.epoch("ns").to_numpy() // (period_s * NS_PER_S)
    first = int(tick.min())
    count = int(tick.max()) - first + 1
    service = np.array([place[name] for name in rows["service"].to_list()], np.int64)
    at = (tick - first) * len(services) + service
    prompt = rows["context_tokens"].to_numpy()
    generated = rows["generated_tokens"].to_numpy()
    work = MODEL_SIZE * (prompt / PROMPT_TOKENS_PER_S + generated / GENERATED_TOKENS_PER_S)
    shape = (count, len(services))
    each = [totals(at, x, count * len(services))[0] for x in (np.ones(len(rows)), prompt, generated, work)]
    rates = np.stack([total.reshape(shape) / period_s for total in each], axis=2)
    for i in range(len(services)):
        mine = tick[service == i] - first
        rates[: mine.min(), i] = np.nan
        rates[mine.max() + 1 :, i] = np.nan
    left_out = {
        "requests without service or time": table.dropped,
        "requests without token counts": len(table.rows) - len(rows),
    }
    return Arrivals(services, first * period_s, period_s, rates), left_out
