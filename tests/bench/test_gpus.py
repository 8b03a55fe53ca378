"""The benchmark of the agent's GPU part runs, and its agent loses nothing."""

from bench.node import gpus


def test_the_agent_is_measured() -> None:
    cost = gpus.agent(2, ticks=6, period_s=0.2)
    assert cost.ticks == 6
    assert cost.share > 0
    assert cost.rss_mib > 10
    assert cost.ready_cpu_s > 0
