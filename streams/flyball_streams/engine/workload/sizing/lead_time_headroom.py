"""The lead policy of the worker: headroom for the error at the lead time, and present work that is kept for a while."""

import numpy as np

from flyball_models.sizing import lead_time_headroom
from flyball_streams.engine.workload.sizing.policy import Basis, Policy, Shown
from flyball_streams.engine.workload.sizing.slo_headroom import based, present


def need(shown: Shown) -> Basis:
    """What workloads need: a backlog is to be gone in a minute and a half, whatever the cold start."""
    there = present(shown, np.full(len(shown.rows), lead_time_headroom.DRAIN_S))
    asked = lead_time_headroom.hold(shown.columns.need, shown.rows, shown.t_s, there.asked)
    return based(shown, there._replace(asked=asked))


POLICY = Policy(need, lead_time_headroom.RULE)
