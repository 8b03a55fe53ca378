"""Configuration of what the agent reads of GPUs."""

from flyball_contracts.config.base import Positive, Section


class GpuConfig(Section, frozen=True, kw_only=True):
    """The NVML collector.

    The frame of details comes every ``detail_period_s``, and whenever a GPU stalls or comes back. A GPU that has not
    answered for ``stalled_after_s`` is reported; its row is empty before that already.
    """

    detail_period_s: Positive = 10.0
    stalled_after_s: Positive = 2.0
