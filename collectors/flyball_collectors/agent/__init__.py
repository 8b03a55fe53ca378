"""The node agent: reads the collectors at fixed ticks and sends their readings to Kafka."""

from flyball_collectors.agent.loop import AgentReport as AgentReport
from flyball_collectors.agent.run import (
    read_once as read_once,
    run_agent as run_agent,
)
