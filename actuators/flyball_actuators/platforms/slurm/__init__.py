"""Slurm: jobs requeued and held, released, and moved off nodes; nodes turned off and on."""

from flyball_actuators.platforms.slurm.platform import SlurmPlatform as SlurmPlatform
from flyball_actuators.platforms.slurm.power import power_pools as power_pools
