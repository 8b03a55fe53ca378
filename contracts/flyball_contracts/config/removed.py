"""Keys that older versions had, each with what to do now."""

import re

TUNED = "it is a constant that the benchmarks tune; leave it out"


def _of(section: str, keys: str, words: str = TUNED) -> dict[str, str]:
    return {f"{section}.{key}": words for key in keys.split()}


REMOVED = {
    **_of("worker", "lane_lateness_ticks max_ahead_ticks profile_every_ticks timing"),
    **_of("worker", "watchdog_s", "a worker ends itself after a minute without progress; leave it out"),
    **_of("worker.forecast", "level_rate trend_rate damping horizon_ticks lead_ticks publish_every_ticks"),
    **_of("worker.forecast", "conformal_rate levels trust_tolerance trust_after_ticks"),
    **_of("worker.health", "peer_z peer_ticks peer_of_ticks"),
    **_of("worker.sizing", "headroom_rate memory_s price_rate forecast_level level down_level growth"),
    **_of("worker.sizing", "delay_s", "work is late after five seconds; give the workload an objective of its own"),
    **_of("worker.rightsizing", "every_s after_s least_change kill_hours slow_ratio"),
    **_of("worker.choice", "every_s least_saving pay_back_s retry_s"),
}


def remedy(path: str) -> str | None:
    """What to do about the key at ``path``; ``None`` where there never was one."""
    return REMOVED.get(re.sub(r"\[\d+\]", "", path))
