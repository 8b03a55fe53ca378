"""The agent's metrics of itself in the ``HOST`` frame."""

import numpy as np
from numpy.typing import NDArray

from flyball_collectors.agent.delivery.null_outbox import NullOutbox
from flyball_collectors.agent.delivery.outbox import Outbox
from flyball_collectors.base import NAN
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.metrics import HOST


class OwnMetrics:
    """Fills the agent's own columns; its counters rise from zero when the agent starts."""

    def __init__(self) -> None:
        self._framed: dict[str, float] = {}

    def fill(
        self,
        row: NDArray[np.float32],
        outbox: Outbox | NullOutbox,
        *,
        now_ns: int,
        read_ns: int,
        skipped: int,
        taken: int,
        lost: int,
    ) -> None:
        """Write into ``row``, ``float32[len(HOST)]``.

        ``read_ns`` is the time of the previous tick's reads, 0 for none; ``skipped`` counts missed ticks so far,
        ``taken`` and ``lost`` the OTLP requests.
        """
        spool = outbox.spool_stats
        gauges = {"flyball.agent.read.duration": read_ns / NS_PER_S if read_ns else NAN}
        counts: dict[str, float] = {
            "flyball.agent.records{state=produced}": outbox.sent,
            "flyball.agent.records{state=delivered}": outbox.delivered,
            "flyball.agent.records{state=dropped}": outbox.dropped,
            "flyball.agent.ticks{state=skipped}": skipped,
            "flyball.agent.export.requests{state=delivered}": taken,
            "flyball.agent.export.requests{state=dropped}": lost,
        }
        if spool is not None:
            counts["flyball.agent.records{state=spooled}"] = spool.spooled
            gauges["flyball.agent.spool.usage"] = spool.bytes
            oldest_ns = now_ns if spool.oldest_ns is None else spool.oldest_ns
            gauges["flyball.agent.spool.age"] = max(now_ns - oldest_ns, 0) / NS_PER_S
        for key, value in gauges.items():
            row[HOST.column(key)] = value
        for key, value in counts.items():
            row[HOST.column(key)] = value - self._framed.get(key, 0.0)
        self._framed = counts
