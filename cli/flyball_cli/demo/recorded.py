"""A simulated fleet that serves the demand of a recording.

A recording cannot carry out decisions. So the demand of its services is taken from it, as the engine computes it, and a
simulated fleet of the same size serves that demand and carries out decisions. Its machines and their power are those of
a simulated H100, the grid is the simulated one, and work is counted in seconds of one replica.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.config import FleetConfig, GridZone, NodePool, Service, WorkerConfig
from flyball_contracts.errors import RecordingError
from flyball_contracts.ids import NS_PER_S

GPUS_PER_NODE = 8
POOL = "recorded"
ZONE = GridZone(name="DE", hour_at_start=6.0, carbon_g_per_kwh=380.0, price_usd_per_kwh=0.16, solar_share=0.45)
PRICE_USD_PER_HOUR = 31.2
LEAST_REPLICAS = 1


def fleet_of_recording(path: Path, config: WorkerConfig, tick_s: float, seed: int = 1) -> FleetConfig:
    """Fleet that serves the demand of the recording's services, in ticks of ``tick_s`` seconds.

    Raises :class:`RecordingError` when the file cannot be read, or no service in it reports its work.
    """
    from flyball_streams.backtest.demands.recorded import read_recording

    recorded = read_recording(path, config)
    step = max(1, round(tick_s))
    services: list[Service] = []
    gpus = 0.0
    for name, demand in sorted(recorded.items()):
        spec = recorded.specs[name]
        most = max(spec.max_replicas, 1)
        each = max(1, round(spec.gpus_per_replica))
        if each > GPUS_PER_NODE:
            raise RecordingError(f"{path}: a replica of {name} takes {each} GPUs; a simulated node has {GPUS_PER_NODE}")
        work = _means(demand.work, step)
        requests = float(demand.requests.mean())
        start = int(np.clip(np.ceil(work[0] / max(spec.target_utilization, 0.1)), max(spec.min_replicas, 1), most))
        objective = spec.objective
        services.append(
            Service(
                name=name,
                pools=(POOL,),
                replicas=start,
                gpus_per_replica=each,
                tenant=spec.tenant,
                priority=spec.priority,
                cold_start_s=spec.cold_start_s,
                min_replicas=max(spec.min_replicas, LEAST_REPLICAS),
                max_replicas=most,
                capacity_tokens_per_s=1.0,
                tokens_per_request=float(demand.work.mean()) / requests if requests > 0 else 1.0,
                delay_s=5.0 if objective is None else objective.delay_s,
                attainment=0.99 if objective is None else objective.attainment,
                arrivals=tuple(float(x) for x in work),
                arrivals_step_s=float(step),
            )
        )
        gpus += most * each
    nodes = -(-int(gpus) // GPUS_PER_NODE)
    pool = NodePool(name=POOL, sku="h100", nodes=max(nodes, 1), zone=ZONE.name, price_usd_per_hour=PRICE_USD_PER_HOUR)
    return FleetConfig(
        cell="recorded",
        seed=seed,
        tick_s=tick_s,
        zones=(ZONE,),
        pools=(pool,),
        trainings=(),
        services=tuple(services),
        notebooks=(),
        batches=(),
        failing=(),
        straggling=(),
    )


def span_and_period_s(path: Path) -> tuple[float, float]:
    """Length of a recording and the tick of its telemetry, in seconds; raises :class:`RecordingError`."""
    from flyball_contracts.frame import decode_frame
    from flyball_contracts.topics import TELEMETRY
    from flyball_streams.recording import Recording

    recording = Recording.open(path)
    first, last = recording.from_ns, recording.to_ns
    for batch in recording.messages():
        for row in batch:
            if row.topic == TELEMETRY.name and row.value is not None:
                return (last - first) / NS_PER_S, decode_frame(row.value).period_ns / NS_PER_S
    raise RecordingError(f"{path}: it holds no telemetry; record flyball.telemetry.v1")


def _means(values: NDArray[np.float64], step: int) -> NDArray[np.float64]:
    """Mean of each ``step`` values; a shorter last part counts as whole."""
    starts = np.arange(0, len(values), step)
    return np.add.reduceat(values, starts) / np.diff(np.append(starts, len(values)))
