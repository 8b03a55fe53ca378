"""Pages of gateways, with the series and labels that their documentation names."""

import json


def envoy(cluster: str, total: int = 0, refused: int = 0, pending: int = 0, active: int = 0) -> str:
    """The admin page of an Envoy with two clusters, of which one is its own."""
    own = "xds_cluster"
    lines = [
        *("# TYPE envoy_cluster_upstream_rq_total counter", _line("upstream_rq_total", cluster, total)),
        _line("upstream_rq_total", own, 1000),
        *("# TYPE envoy_cluster_upstream_cx_none_healthy counter", _line("upstream_cx_none_healthy", cluster, refused)),
        *(
            "# TYPE envoy_cluster_upstream_rq_pending_active gauge",
            _line("upstream_rq_pending_active", cluster, pending),
        ),
        *("# TYPE envoy_cluster_upstream_rq_active gauge", _line("upstream_rq_active", cluster, active)),
        _line("upstream_rq_active", own, 7),
        *("# TYPE envoy_server_live gauge", "envoy_server_live{} 1"),
    ]
    return "\n".join([*lines, ""])


def picker(model: str, total: int, queued: int, running: int = 0) -> str:
    """An endpoint picker; it shows the series of a model from its first request on, under an old and a new name."""
    held = f'fairness_id="default",priority="0",inference_pool="pool",model_name="{model}",target_model_name="{model}"'
    lines = ["# TYPE inference_pool_ready_pods gauge", 'inference_pool_ready_pods{name="pool"} 0']
    if total or queued:
        for prefix in ("llm_d_epp", "inference_extension"):
            lines.append(f"{prefix}_flow_control_queue_size{{{held}}} {queued}")
        for name in ("llm_d_epp_request_total", "inference_objective_request_total"):
            lines.append(f'{name}{{model_name="{model}",target_model_name="{model}",priority="0"}} {total}')
        lines.append(f'inference_objective_running_requests{{model_name="{model}"}} {running}')
    return "\n".join([*lines, ""])


def interceptor(host: str, ended: int, pending: int) -> str:
    """The interceptor of the KEDA HTTP add-on, in the names of the versions that tell hosts apart."""
    scope = 'otel_scope_name="keda-interceptor-proxy",otel_scope_version=""'
    lines = ['target_info{service_name="interceptor-proxy"} 1']
    if pending or ended:
        lines.append(f'interceptor_pending_request_count{{host="{host}",{scope}}} {pending}')
    if ended:
        called = f'code="200",host="{host}",method="POST",path="/v1"'
        lines.append(f"interceptor_request_count_total{{{called},{scope}}} {ended}")
    return "\n".join([*lines, ""])


def routed(route: str, ended: int, pending: int) -> str:
    """The same of the versions that tell routes apart."""
    where = f'route_name="{route}",route_namespace="ml"'
    lines = [f"interceptor_pending_requests{{{where}}} {pending}"]
    if ended:
        lines.append(f'interceptor_requests_total{{code="200",method="POST",{where}}} {ended}')
    return "\n".join([*lines, ""])


def queue(target: str, active: int, rate: float | None = None) -> str:
    """The queue on the admin port of the same, of the versions before and since it tells rates."""
    count = active if rate is None else {"Concurrency": active, "RPS": rate}
    return json.dumps({target: count, "ml/other": 9 if rate is None else {"Concurrency": 9, "RPS": 9.5}}) + "\n"


def _line(name: str, cluster: str, value: int) -> str:
    return f'envoy_cluster_{name}{{envoy_cluster_name="{cluster}"}} {value}'
