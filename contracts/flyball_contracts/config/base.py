"""Common base of the configuration sections; unknown keys are errors, units are in the names."""

from typing import Annotated, Literal

import msgspec

Positive = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Period = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
"""Seconds between two rounds, at most a day."""
Ratio = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=1)]
Partitions = Annotated[int, msgspec.Meta(ge=1, le=100_000)]
"""Partitions of a topic: a cluster of brokers holds some hundred thousands in all."""
Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Driver = Literal[
    "inventory", "simulated", "kubernetes", "slurm", "autoscaler", "kueue", "webhook", "docker", "aws", "gcp", "azure",
    "karpenter",
]  # fmt: skip
"""Kind of platform that carries decisions out."""


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of the configuration sections."""
