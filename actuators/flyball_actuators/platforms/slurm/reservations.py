"""Reserves nodes for a job on several nodes, from its release until it starts.

A stopped job starts seconds after its release, and a job on many nodes needs them all at once: without a reservation
another job could take one of them. The name is derived from decision and job, so creating it again changes nothing.
Once the job runs, it is removed from the reservation, which would otherwise end with it, and the reservation is
deleted. Slurm purges reservations without jobs.
"""

import hashlib

from flyball_actuators.platforms.base import Rejected
from flyball_actuators.platforms.slurm.commands import Commands
from flyball_actuators.platforms.slurm.jobs import Job

PREFIX = "flyball-"
_PURGED_AFTER = "00:05:00"
KEPT_S = 120
"""A job gets free nodes within seconds; unused reserved nodes are released after this time."""


def reservation_of(decision: str, job: Job) -> str:
    """Name of a decision's reservation for a job."""
    return PREFIX + hashlib.sha256(f"{decision}\0{job.key}".encode()).hexdigest()[:16]


def reserve_nodes(commands: Commands, job: Job, decision: str) -> str:
    """Reserve nodes for a job that is about to be released; return text on it, empty if none are needed or free.

    Without free nodes the job waits for them like any other.
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
    """Delete Flyball's reservation for a job; the job continues."""
    if not job.reservation.startswith(PREFIX):
        return
    if not job.ended:
        commands.apply("scontrol", "update", f"JobId={job.key}", "ReservationName=")
    commands.apply("scontrol", "delete", f"ReservationName={job.reservation}")
