"""Pauses: jobs that are suspended where they run, instead of requeued and held.

A suspended job keeps its nodes, its memory and its GPUs, which no other job gets, and goes on where it was. So it is
suspended only if nothing is to get its place: a pause until a time, without a beneficiary and without a checkpoint. Its
partition must allow it by ``PreemptMode=SUSPEND``, by which Slurm permits the suspension of jobs there.
"""

import re

from flyball_actuators.platforms.slurm.commands import Commands
from flyball_contracts.records import Preempt, Scale

_MODE = re.compile(r"\bPartitionName=(\S+).*?\bPreemptMode=(\S+)")


def pausable(commands: Commands, decision: Scale | Preempt) -> frozenset[str]:
    """Partitions whose jobs a decision may suspend; none unless it is a pause."""
    if not (isinstance(decision, Preempt) and decision.until_ns is not None):
        return frozenset()
    if decision.checkpoint or decision.beneficiary:
        return frozenset()
    shown = commands.query("scontrol", "-o", "show", "partition")
    found = (_MODE.search(line) for line in shown.splitlines())
    return frozenset(one[1] for one in found if one is not None and "SUSPEND" in one[2].split(","))
