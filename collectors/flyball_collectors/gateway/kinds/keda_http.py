"""The interceptor of the KEDA HTTP add-on, which holds a request until a replica is ready.

It counts a request when it ends, and as pending from its arrival to its end. Older versions distinguish routes by the
label ``host``, newer ones by ``route_name``.
"""

from flyball_collectors.gateway.kinds.base import Kind
from flyball_contracts.config import Series

KEDA_HTTP = Kind(
    Series(
        ended=("interceptor_requests_total", "interceptor_request_count_total"),
        active=("interceptor_pending_requests", "interceptor_pending_request_count", "interceptor_request_concurrency"),
    ),
    "host",
)
