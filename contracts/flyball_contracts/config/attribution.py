"""Configuration of the attribution of a node's use to workloads."""

from typing import Annotated, Literal

import msgspec

from flyball_contracts.config.base import Section

Name = Annotated[str, msgspec.Meta(min_length=1)]

Label = Literal["runtime", "namespace", "pod", "uid", "job", "user", "container", "unit"]


class NamingRule(Section, frozen=True, kw_only=True):
    """Names the workload of units whose labels fit all glob patterns in ``match``.

    Labels are ``runtime`` (kubernetes, slurm, container or process) and the runtime's names of the unit: ``namespace``,
    ``pod`` and ``uid``; ``job`` and ``user``, the number of its user; ``container``; ``unit``. No other unit may report
    for that workload.
    """

    match: Annotated[dict[Label, str], msgspec.Meta(min_length=1)]
    workload: Name


class AttributionConfig(Section, frozen=True, kw_only=True):
    """Attribution of devices and host.

    Every unit that uses a device is reported, and with ``without_devices`` every pod and job. The first matching one of
    the ``rules`` names its workload.
    """

    without_devices: bool = False
    rules: tuple[NamingRule, ...] = ()
