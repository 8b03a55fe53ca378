"""Keys of older versions, each with its replacement."""

import re

TUNED = "it is a constant that the benchmarks tune; leave it out"
TOKEN_FILE = "put the token into a file, and name that in token_file"
AWS_KEYS = "put the key into AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN"
WINDOW = 'write "mon,tue 22:00-06:00" or "fri 16:00-mon 08:00", and zone in the policy'
TEN_MINUTES = "it is ten minutes; for another window write a policy with limits"
CONTEXT = "make it the current context of the kubeconfig"
GATEWAYS = "write them as agent.workloads.targets, which have workloads; name is replica, kind is server"
LIST = "feeds is a list; write {source: NAME, zone: ...}"
PACE = "a feed is queried as often as its provider has something new; leave it out"
SPOT = "aws_spot_price aws_spot_advisor azure_spot_price gcp_spot_price"


def _of(section: str, keys: str, words: str = TUNED) -> dict[str, str]:
    return {f"{section}.{key}": words for key in keys.split()}


REMOVED = {
    **_of("worker", "lateness_ticks lane_lateness_ticks max_ahead_ticks profile_every_ticks timing"),
    **_of("worker", "decision_ttl_s", "a decision expires two minutes after its tick; leave it out"),
    **_of("worker.pools", "buy_after_s"),
    **_of("worker", "watchdog_s", "a worker ends itself after a minute without progress; leave it out"),
    **_of("worker.forecast", "level_rate trend_rate damping horizon_ticks lead_ticks publish_every_ticks"),
    **_of("worker.forecast", "conformal_rate levels trust_tolerance trust_after_ticks"),
    **_of("worker.health", "peer_z peer_ticks peer_of_ticks"),
    **_of(
        "worker.sizing", "tolerance headroom_rate memory_s price_rate forecast_level level down_level growth cooldown_s"
    ),
    **_of("worker.sizing", "delay_s", "work is late after five seconds; give the workload an objective of its own"),
    **_of("worker.rightsizing", "every_s after_s least_change kill_hours slow_ratio policy"),
    **_of("worker.choice", "every_s least_saving pay_back_s retry_s"),
    **_of("agent", "queue_bytes inventory_period_s gpu"),
    **_of("agent", "spool_dir", "the spool is in agent.state_dir; set that"),
    **_of("agent", "gateways", GATEWAYS),
    **_of("agent", "host nvml kmsg", "it runs; switch it off in agent.disabled"),
    **_of("agent.attribution", "enabled", "it runs; switch it off by agent.disabled: [attribution]"),
    **_of("agent", "cloud", "set agent.provider to aws, gcp or azure; of another name nothing is queried"),
    **_of("agent.export", "otlp_period_s otlp_queue otlp_timeout_s"),
    **_of("agent.attribution", "usage_period_s"),
    **_of("agent.attribution", "groups pod_logs", "pods and jobs are found by the names of the kubelet and of Slurm"),
    **_of("agent.workloads", "kubernetes slurm", "write discover: [kubernetes, slurm]; the rest is found"),
    **_of("agent.workloads", "period_s timeout_s page_bytes silent_s"),
    **_of("agent.workloads.targets.series", "latency_unit_s", "it is seconds, or what the name ends in: _ms or _us"),
    **_of("agent.workloads.targets.series", "copies", "name one of the copies by a label in the selector"),
    **_of("feeds", "horizon_hours"),
    **_of("agent.workloads.targets.series", "latency_sum latency_count", "name X under latency for X_sum and X_count"),
    **_of("agent.workloads.targets", "token_env", TOKEN_FILE),
    **_of("feeds", "timeout_s retry_s retry_cap_s"),
    **_of("feeds", f"file uk_carbon electricity_maps watttime {SPOT}", LIST),
    **_of("feeds", "period_s stale_after_s", PACE),
    **_of("feeds", "base_url metadata_url", "it is the provider's own; leave it out"),
    **_of("feeds", "forecast", "a file with slots after its time of issue is a forecast; leave it out"),
    **_of("feeds", "average lifecycle", "Flyball does the same for all of them; leave it out"),
    **_of("feeds", "key_from", "a key in the environment is used, else the role of the machine; leave it out"),
    **_of("feeds", "step_s", "a slot is as long as the smallest distance of the times; leave it out"),
    **_of("feeds", "token_env", "put the token into ELECTRICITYMAPS_TOKEN"),
    **_of("feeds", "username_env password_env", "put the account into WATTTIME_USER and WATTTIME_PASSWORD"),
    **_of("feeds", "access_key_env secret_key_env session_token_env", AWS_KEYS),
    **_of("feeds", "key_env", "put the key into GCP_API_KEY"),
    **_of("actuator.policies.only_during", "start end days zone", WINDOW),
    **_of("actuator.policies.never_during", "start end days zone", WINDOW),
    **_of("actuator.per_target", "window_s", TEN_MINUTES),
    **_of("actuator.per_cell", "window_s", TEN_MINUTES),
    **_of("actuator.blast_radius", "window_s", TEN_MINUTES),
    **_of("actuator", "max_age_s", "decisions older than 15 minutes are refused; leave it out"),
    **_of("controller", "period_s timeout_s"),
    **_of("dashboard", "token_env", "put the token into FLYBALL_DASHBOARD_TOKEN"),
    **_of("influx", "token_env", "put the token into INFLUX_TOKEN"),
    **_of("agent.export", "otlp_headers_env", "put the headers into OTEL_EXPORTER_OTLP_HEADERS"),
    **_of("agent.workloads.targets", "work", "write token_weights: [1.0, 1.0] for tokens in and out, or leave it out"),
    **_of("worker.choice.offers", "pool", "spot of one GPU type in one zone is reclaimed together; leave it out"),
    **_of(
        "worker.sizing", "capacity cold_start measured", "both are measured, from the owner's values on; leave it out"
    ),
    **_of("worker.sizing", "late_cost", "give the workload an objective of its own"),
    **_of("actuator.platforms", "context", CONTEXT),
    **_of("controller", "context", CONTEXT),
    **_of("actuator.platforms.scaler", "key", "put it beside the certificate, in a file that ends in .key"),
    **dict.fromkeys(
        ("signal_step_s", "signal_horizon_s", "signal_every_s"), "curves are quarter hours, 36 h ahead, hourly"
    ),
    "hpa_utilization": "the baseline's autoscaler aims at 0.7; leave it out",
    **_of("notebooks", "active_share active_s", "a notebook is busy an eighth of the time; leave it out"),
}


def remedy(path: str) -> str | None:
    """What to use instead of the key at ``path``; ``None`` if it never existed."""
    return REMOVED.get(re.sub(r"\[\d+\]", "", path))
