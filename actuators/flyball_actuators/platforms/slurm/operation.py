"""The name of an operation: everything that another process needs to continue it."""

from typing import Literal

from flyball_actuators.platforms import operations
from flyball_actuators.platforms.base import PlatformError
from flyball_actuators.platforms.slurm.targets import key_of


class Operation(operations.NamedOperation, frozen=True, kw_only=True, omit_defaults=True):
    """The submission of one decision; ``jobs`` are the marked jobs, comma-separated.

    ``count``: set ``replicas``; with ``serve`` they must run. Jobs to stop that run in one of the partitions ``pause``,
    which are comma-separated, are suspended. ``migrate``: ``replica`` leaves ``node``. ``check``: a job checks
    ``node``, with at least ``gpus`` GPUs. The operation is given up after ``until_ns``.
    """

    verb: Literal["count", "migrate", "check"]
    decision: str
    workload: str
    jobs: str = ""
    replicas: int = -1
    serve: bool = False
    checkpoint: bool = False
    pause: str = ""
    replica: str = ""
    node: str = ""
    drain: bool = False
    gpus: int = 0
    until_ns: int = 0

    @property
    def keys(self) -> list[str]:
        """Keys of the jobs."""
        return [one for one in self.jobs.split(",") if one]


def decode(text: str) -> Operation:
    """Parse the operation of an outcome; :class:`PlatformError` for another platform's."""
    operation = operations.decode(Operation, text, "platform slurm")
    if any(key_of(key) != key for key in operation.keys):
        raise PlatformError(f"operation {text!r} is none of platform slurm: jobs are {operation.jobs!r}")
    return operation
