"""The benchmark of the agent's host part runs the real agent and reads its cost."""

from bench.node import host


def test_the_agent_is_measured() -> None:
    cost = host.agent(1)
    assert cost.share > 0
    assert cost.rss_mib > 10
