"""Pools and nodes that decisions are about, and how these name them in ``workload``."""

from collections.abc import Iterable
from fnmatch import fnmatchcase

POOL, NODE = "pool:", "node:"


def pool_of(workload: str) -> str:
    """The pool that a decision's ``workload`` names as ``pool:NAME``, empty where it names something else."""
    return workload[len(POOL) :] if workload.startswith(POOL) else ""


def node_of(workload: str) -> str:
    """The node that a decision's ``workload`` names as ``node:NAME``, empty where it names something else."""
    return workload[len(NODE) :] if workload.startswith(NODE) else ""


def subject_of_node(node: str) -> str:
    """Name of a node as a decision's ``workload``."""
    return NODE + node


def covered(workload: str, patterns: Iterable[str]) -> bool:
    """Whether a glob pattern matches a decision's ``workload``.

    A pool is matched only by a pattern that begins with ``pool:``, and a node by one with ``node:``: permission for all
    workloads is no permission to buy machines or to open nodes.
    """
    prefix = POOL if pool_of(workload) else NODE if node_of(workload) else ""
    return any(fnmatchcase(workload, pattern) for pattern in patterns if pattern.startswith(prefix))
