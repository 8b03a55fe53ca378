"""Two patches that let Faust run on the embedded broker. For the demo and tests only.

A real Kafka needs neither. Call `apply` before the Faust app starts, and only when the broker is the
embedded one. Both patch private names: `tests/streams/test_faust_on_mock.py` fails when they move.
"""

import asyncio
from importlib import import_module
from typing import Any

# Through Any: aiokafka has no types, and the names are private.
_THREAD: Any = import_module("faust.transport.drivers.aiokafka").AIOKafkaConsumerThread
_REBALANCE: Any = import_module("aiokafka.consumer.group_coordinator").CoordinatorGroupRebalance
_CREATE_CONSUMER: Any = _THREAD._create_worker_consumer
_LEAD_JOIN: Any = _REBALANCE._on_join_leader


def apply(fetch_wait_ms: int = 50, leader_delay_s: float = 0.3) -> None:
    """Patch Faust and aiokafka in this process; calling it again only changes the two times.

    Faust asks a broker to wait up to 1.5 s for data, and the mock always waits that long: each new consumer requests
    `fetch_wait_ms` instead. The mock ends a rebalance when the group's leader reports, and a follower that reports
    later hangs for ever: the leader holds back for `leader_delay_s`.
    """

    def create_consumer(thread: Any, transport: Any) -> Any:
        consumer = _CREATE_CONSUMER(thread, transport)
        consumer._fetch_max_wait_ms = fetch_wait_ms
        return consumer

    async def lead_join(rebalance: Any, response: Any) -> Any:
        await asyncio.sleep(leader_delay_s)
        return await _LEAD_JOIN(rebalance, response)

    _THREAD._create_worker_consumer = create_consumer
    _REBALANCE._on_join_leader = lead_join
