"""Text Generation Inference: counters have no suffix and appear with the first request.

``tgi_request_count`` counts requests as they come in. A failure has its cause in the label ``err``, ``dropped`` if the
client disconnected. A step of decoding gives each request of the batch a token: that is the time between tokens. It
shows neither the time to the first token nor how full its cache is.
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
    output_token=('tgi_batch_inference_duration{method="decode"}',),
)
