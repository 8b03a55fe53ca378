"""Text Generation Inference: counters have no suffix and appear with the first request.

``tgi_request_count`` counts requests as they come in. A failure gives its cause in
the label ``err``, which is ``dropped`` when the client went away.
"""

from flyball_contracts.config.workload import Series

TGI = Series(
    arrived=("tgi_request_count",),
    ended=("tgi_request_success + tgi_request_failure",),
    failed=('tgi_request_failure{err!="dropped"}',),
    active=("tgi_batch_current_size",),
    queued=("tgi_queue_size",),
    tokens_in=("tgi_request_input_length_sum",),
    tokens_out=("tgi_request_generated_tokens_sum",),
    latency=("tgi_request_duration",),
)
