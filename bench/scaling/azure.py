"""Demand of Azure's LLM services: single requests at their recorded times."""

from pathlib import Path

import numpy as np
import polars as pl

from flyball_streams.backtest.demands.demand import Demand, Floats
from flyball_streams.importers.base import GENERATED_TOKENS_PER_S, NS_PER_S, PROMPT_TOKENS_PER_S, read_table

MEAN_WORK = 20.0
AZURE_NAME = "azure-"
CHAT = "conv"
"""The service that provides the requests of type chat, if the trace has it."""


def _rows(folder: Path) -> pl.DataFrame:
    keys = {"service": pl.String(), "timestamp": pl.Datetime("ns")}
    values = {"context_tokens": pl.Float64(), "generated_tokens": pl.Float64()}
    rows = read_table(folder, "requests.parquet", keys, values).rows.drop_nulls()
    prompt = pl.col("context_tokens") / PROMPT_TOKENS_PER_S
    work = prompt + pl.col("generated_tokens") / GENERATED_TOKENS_PER_S
    share = pl.when(work > 0).then(prompt / work).otherwise(0.0)
    time = pl.col("timestamp").dt.epoch("ns")
    return rows.select("service", time.alias("ns"), work.alias("work"), share.alias("prompt"))


def request_work(folder: Path) -> tuple[Floats, Floats, str]:
    """Work of each request in seconds of one replica, and the share of it that the prompt takes.

    Requests of the chat service if there is one, else of all. Both float64 [requests].
    """
    rows = _rows(folder)
    chat = rows.filter(pl.col("service") == CHAT)
    chosen, name = (chat, CHAT) if len(chat) else (rows, ", ".join(rows["service"].unique().sort().to_list()))
    work, prompt = (chosen[key].to_numpy().astype(np.float64) for key in ("work", "prompt"))
    return work, prompt, f"tokens of Azure 2023 {name}"


def azure_requests(folder: Path, name: str) -> tuple[Floats, Floats, Floats]:
    """Arrival time [s after the first], work [s of one replica] and prompt share of each request of a service.

    All float64 [n].
    """
    rows = _rows(folder).filter(pl.col("service") == name)
    ns = rows["ns"].to_numpy()
    return (ns - ns[0]) / NS_PER_S, rows["work"].to_numpy().astype(np.float64), rows["prompt"].to_numpy()


def read_azure(folder: Path) -> list[Demand]:
    """Demand of each service, second by second. Its work is scaled to :data:`MEAN_WORK` busy replicas.

    More work per request stands for a larger model; arrivals and their bursts are unchanged.
    """
    rows = _rows(folder)
    found: list[Demand] = []
    for name in rows["service"].unique().sort().to_list():
        part = rows.filter(pl.col("service") == name)
        ns = part["ns"].to_numpy()
        second = (ns - ns[0]) // NS_PER_S
        length = int(second[-1]) + 1
        work = np.bincount(second, part["work"].to_numpy(), length).astype(np.float64)
        requests = np.bincount(second, minlength=length).astype(np.float64)
        about = f"Azure 2023 {name}: {len(part)} requests in {length} s"
        found.append(Demand(AZURE_NAME + name, work, requests, about, float(ns[0]) / NS_PER_S).scaled(MEAN_WORK))
    return found
