"""Configuration of the attribution of a node's use to workloads."""

from typing import Annotated, Literal

import msgspec

from flyball_contracts.config.base import Section

Name = Annotated[str, msgspec.Meta(min_length=1)]

Label = Literal["runtime", "namespace", "pod", "uid", "job", "user", "container", "unit"]


class NamingRule(Section, frozen=True, kw_only=True):
    """Names the workload of units whose labels fit all glob patterns in ``match``; no other unit may report for it.

    Labels are ``runtime`` (kubernetes, slurm, container or process; empty for an unknown sender of a line) and the
    runtime's names of the unit: ``namespace``, ``pod`` and ``uid``; ``job`` and ``user``, the number of its user;
    ``container``; ``unit``. Where ``workload`` is a glob pattern itself, such as ``tune-*``, the rule names no unit. It
    lets these units choose matching names without a ``/`` that no other rule gives.
    """

    match: Annotated[dict[Label, str], msgspec.Meta(min_length=1)]
    workload: Name

    def __post_init__(self) -> None:
        """Refuse patterns of names that belong to namespaces and units."""
        if self.is_pattern and "/" in self.workload:
            raise ValueError(
                f"workload {self.workload!r} is a pattern with a '/', and such names belong to their namespace; "
                "give each by a rule of its own"
            )

    @property
    def is_pattern(self) -> bool:
        """Whether the rule lets units choose among names, instead of naming them."""
        return is_pattern(self.workload)


def is_pattern(name: str) -> bool:
    """Whether a name is a glob pattern."""
    return any(sign in name for sign in "*?[")


class AttributionConfig(Section, frozen=True, kw_only=True):
    """Attribution of devices and host.

    Every unit that uses a device is reported, and with ``without_devices`` every pod and job. The first matching rule
    of ``rules`` whose ``workload`` is not a pattern names the unit's workload.
    """

    without_devices: bool = False
    rules: tuple[NamingRule, ...] = ()
