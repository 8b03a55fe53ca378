"""Configuration of whom the use of this node is put down to."""

from typing import Annotated, Literal

import msgspec

from flyball_contracts.config.base import Positive, Section

Name = Annotated[str, msgspec.Meta(min_length=1)]

Label = Literal["runtime", "namespace", "pod", "uid", "job", "container", "unit"]
GroupPattern = Annotated[str, msgspec.Meta(pattern=r"^[^/.]", description="a pattern without a leading slash or dot")]


class NamingRule(Section, frozen=True, kw_only=True):
    """Names a workload: that of units all of whose labels in ``match`` fit the glob patterns there.

    Labels are ``runtime`` (kubernetes, slurm, container or process) and what that calls the unit: ``namespace``,
    ``pod`` and ``uid``; ``job``; ``container``; ``unit``.
    """

    match: Annotated[dict[Label, str], msgspec.Meta(min_length=1)]
    workload: Name


class AttributionConfig(Section, frozen=True, kw_only=True):
    """Who uses the devices and the host.

    Whoever uses a device is told of, and with ``without_devices`` each pod and job. Their control groups are looked
    for in ``groups``, patterns of folders in the control group file system, and the names of pods in ``pod_logs``,
    the kubelet's log folders in ``agent.root``. The first of the ``rules`` that fits names a workload. Devices are
    divided at each tick; what is used is told every ``usage_period_s``.
    """

    enabled: bool = True
    usage_period_s: Positive = 10.0
    without_devices: bool = False
    groups: tuple[GroupPattern, ...] = ("kubepods*", "kubelet*", "system.slice/*slurmstepd.scope", "slurm*")
    pod_logs: Name = "/var/log/pods"
    rules: tuple[NamingRule, ...] = ()
