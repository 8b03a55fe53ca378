"""Nodes that decisions are about, and how these name them."""

PREFIX = "node:"


def node_of(workload: str) -> str:
    """The node that a decision's ``workload`` names as ``node:NAME``, empty if it names something else."""
    return workload[len(PREFIX) :] if workload.startswith(PREFIX) else ""


def subject_of_node(node: str) -> str:
    """Name of a node as a decision's ``workload``."""
    return PREFIX + node
