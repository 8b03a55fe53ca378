"""Driver ``slurm``: requeues, holds, releases and moves jobs; turns nodes off and on; checks nodes."""

from flyball_actuators.platforms.slurm.platform import SlurmPlatform as SlurmPlatform
from flyball_actuators.platforms.slurm.power import power_pools as power_pools
