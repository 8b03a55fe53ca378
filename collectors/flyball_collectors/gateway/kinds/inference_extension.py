"""The endpoint picker of the Kubernetes Gateway API Inference Extension.

With its flow control it holds requests while a pool has no pod. Its series have the prefix ``llm_d_epp`` in newer
versions and those of the inference objective or model in older ones. Its averages of the pods' own queues are not used:
replicas report them.
"""

from flyball_collectors.gateway.kinds.base import Kind
from flyball_contracts.config import Series

INFERENCE_EXTENSION = Kind(
    Series(
        arrived=("llm_d_epp_request_total", "inference_objective_request_total", "inference_model_request_total"),
        queued=("llm_d_epp_flow_control_queue_size", "inference_extension_flow_control_queue_size"),
        active=(
            "llm_d_epp_request_running",
            "inference_objective_running_requests",
            "inference_model_running_requests",
        ),
    ),
    "model_name",
)
