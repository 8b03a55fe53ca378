"""Configuration of whom the use of this node is put down to."""

from typing import Annotated, Literal

import msgspec

from flyball_contracts.config.base import Section

Name = Annotated[str, msgspec.Meta(min_length=1)]

Label = Literal["runtime", "namespace", "pod", "uid", "job", "container", "unit"]


class NamingRule(Section, frozen=True, kw_only=True):
    """Names a workload: that of units all of whose labels in ``match`` fit the glob patterns there.

    Labels are ``runtime`` (kubernetes, slurm, container or process) and what that calls the unit: ``namespace``,
    ``pod`` and ``uid``; ``job``; ``container``; ``unit``.
    """

    match: Annotated[dict[Label, str], msgspec.Meta(min_length=1)]
    workload: Name


class AttributionConfig(Section, frozen=True, kw_only=True):
    """Who uses the devices and the host.

    Whoever uses a device is reported, and with ``without_devices`` each pod and job. The first of the ``rules`` that
    fits names a workload.
    """

    without_devices: bool = False
    rules: tuple[NamingRule, ...] = ()
