"""Slurm: jobs requeued and held, released, and moved off nodes."""

from flyball_actuators.platforms.slurm.platform import SlurmPlatform as SlurmPlatform
