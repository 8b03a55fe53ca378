"""The queue of the same interceptor, as JSON on its admin port: the input of the add-on's own scaler.

A map from hosts, in later versions from ``namespace/name``, to requests without an answer: in successive versions a
plain number, ``Requests``, and ``Concurrency`` beside ``RPS``, the requests per second that came in, as a mean over the
window of the target's rate metric.
"""

import msgspec

from flyball_collectors.gateway.kinds.base import Kind
from flyball_collectors.workload.scraping.page import PageError, Sample
from flyball_contracts.config import Series


class Count(msgspec.Struct, rename="pascal"):
    """Counts of a target, with the Go names of the interceptor."""

    concurrency: float | None = None
    requests: float | None = None
    rps: float | None = msgspec.field(default=None, name="RPS")


_QUEUE = msgspec.json.Decoder(dict[str, float | Count])


def samples(page: str) -> list[Sample]:
    """Samples of all targets. Raises :class:`PageError` for an invalid queue document."""
    try:
        queue = _QUEUE.decode(page)
    except msgspec.MsgspecError as error:
        raise PageError(f"this is no queue of the add-on ({error}); check that url is its admin port") from None
    found: list[Sample] = []
    for target, count in queue.items():
        counts = count if isinstance(count, Count) else Count(count)
        active = counts.requests if counts.concurrency is None else counts.concurrency
        named = (("active", active), ("rate", counts.rps))
        found += [Sample(name, {"host": target}, value) for name, value in named if value is not None]
    return found


KEDA_QUEUE = Kind(Series(active=("active",)), "host", "/queue", samples, "rate")
