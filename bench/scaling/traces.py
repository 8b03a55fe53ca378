"""All demand that a folder of public traces contains, by name."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from bench.scaling.azure import AZURE_NAME, azure_requests, read_azure, request_work
from bench.scaling.servegen import Clients, arrivals, read_clients
from bench.scaling.trace_requests import own, redrawn

from flyball_contracts.errors import RecordingError
from flyball_streams.backtest.demands.demand import Demand, Floats
from flyball_streams.backtest.events.requests import PROMPT_SHARE, Requests, Window

SERVEGEN, AZURE = "servegen", "azure_llm_2023"
TYPICAL_WORK_S = 0.188
"""Work of a request if no trace gives it. Work is scaled, so only its variation would matter."""


class Traces(NamedTuple):
    """Fleets whose arrivals are drawn, recorded demand, and the work of real requests.

    ``prompts`` is the prompt's share of each request's work; ``folder`` is the folder of the real requests.
    """

    fleets: dict[str, Clients]
    fixed: dict[str, Demand]
    tokens: Floats
    prompts: Floats
    tokens_from: str
    folder: Path | None = None

    @property
    def names(self) -> list[str]:
        """Names of all traces."""
        return [*self.fleets, *self.fixed]

    def demands(self, name: str, seeds: int) -> list[Demand]:
        """Demand of a trace, one per seed. A trace of real requests has only one."""
        if name in self.fixed:
            return [self.fixed[name]]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            drawn = pool.map(partial(arrivals, self.fleets[name], self.tokens), range(seeds))
            about = f"{self.tokens_from}; scaled to 20 busy replicas"
            return [demand._replace(about=f"{demand.about}; {about}") for demand in drawn]

    def requests(self, demand: Demand, windows: Sequence[Window], seed: int = 0) -> list[Requests]:
        """Single requests of a demand of these traces in each window of seconds."""
        if demand.name in self.fixed and self.folder is not None:
            at_s, work, prompt = azure_requests(self.folder, demand.name.removeprefix(AZURE_NAME))
            return own(at_s, work, prompt, demand, windows)
        return redrawn(self.fleets[demand.name], self.tokens, self.prompts, demand, windows, seed)


def open_traces(data: Path) -> Traces:
    """Open a folder that is a trace or contains several.

    Raises :class:`RecordingError` when it contains none.
    """
    serving = next((p for p in (data, data / SERVEGEN) if (p / "rates.parquet").is_file()), None)
    requests = next((p for p in (data, data / AZURE, data.parent / AZURE) if (p / "requests.parquet").is_file()), None)
    if serving is None and requests is None:
        raise RecordingError(f"{data}: holds neither {SERVEGEN} (rates.parquet) nor {AZURE} (requests.parquet)")
    fleets: dict[str, Clients] = {}
    if serving is not None:
        fleets = {fleet.name: fleet for fleet in read_clients(serving)}
    if requests is None:
        return Traces(fleets, {}, np.full(1, TYPICAL_WORK_S), np.full(1, PROMPT_SHARE), "all requests alike")
    tokens, prompts, described = request_work(requests)
    fixed = {} if serving is not None and requests == data.parent / AZURE else {d.name: d for d in read_azure(requests)}
    return Traces(fleets, fixed, tokens, prompts, described, requests)
