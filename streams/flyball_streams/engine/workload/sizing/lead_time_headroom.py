"""The worker's policy lead_time_headroom: headroom for the error at the lead time; present work is held for a while."""

import numpy as np

from flyball_models.sizing import lead_time_headroom
from flyball_streams.engine.workload.sizing.policy import Basis, Policy, PolicyInput
from flyball_streams.engine.workload.sizing.slo_headroom import based, present


def need(given: PolicyInput) -> Basis:
    """Needs of workloads; a backlog is to be drained in a minute and a half, whatever the cold start."""
    there = present(given, np.full(len(given.rows), lead_time_headroom.DRAIN_S))
    demanded = lead_time_headroom.hold(given.columns.need, given.rows, given.t_s, there.demanded)
    return based(given, there._replace(demanded=demanded))


POLICY = Policy(need, lead_time_headroom.RULE)
