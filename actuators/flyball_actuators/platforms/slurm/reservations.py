"""Room that is kept for a job on several nodes, from its release until it starts.

A job that was stopped starts seconds after its release, and a job of many nodes needs them all at once: without a
reservation, whoever comes first takes one of them. The name is made of the decision and the job, so making it again
changes nothing. Once the job runs, it is taken out of the reservation, which would end it when it ends, and the
reservation is deleted. Slurm purges one that no job is in any more.
"""

import hashlib

from flyball_actuators.platforms.base import Rejected
from flyball_actuators.platforms.slurm.commands import Commands
from flyball_actuators.platforms.slurm.jobs import Job

PREFIX = "flyball-"
_PURGED_AFTER = "00:05:00"
KEPT_S = 120
"""Nodes that were free are a job's within seconds; those that it cannot use are given back after so long."""


def reservation_of(decision: str, job: Job) -> str:
    """The name of a decision's reservation for a job."""
    return PREFIX + hashlib.sha256(f"{decision}\0{job.key}".encode()).hexdigest()[:16]


def reserve_nodes(commands: Commands, job: Job, decision: str) -> str:
    """Keep nodes for a job that is about to be released, and say so; empty where it needs none, or none are free.

    Without free nodes the job waits for them as any other does.
    """
    if job.wide < 2 or job.reservation:
        return ""
    name = reservation_of(decision, job)
    made = commands.apply(
        "scontrol", "create", "reservation", f"ReservationName={name}", "StartTime=now", "Duration=UNLIMITED",
        f"NodeCnt={job.wide}", f"PartitionName={job.partition.partition(',')[0]}", f"Users={job.user}",
        f"Flags=PURGE_COMP={_PURGED_AFTER}",
    )  # fmt: skip
    if made is not None and "Duplicate" not in made.detail:
        return ""
    if isinstance(commands.apply("scontrol", "update", f"JobId={job.key}", f"ReservationName={name}"), Rejected):
        commands.apply("scontrol", "delete", f"ReservationName={name}")
        return ""
    return f", and {job.wide} nodes are kept for it"


def release_nodes(commands: Commands, job: Job) -> None:
    """Delete the reservation that we made for a job; what runs in it goes on."""
    if not job.reservation.startswith(PREFIX):
        return
    if not job.ended:
        commands.apply("scontrol", "update", f"JobId={job.key}", "ReservationName=")
    commands.apply("scontrol", "delete", f"ReservationName={job.reservation}")
