"""What the workloads of the simulated fleet do, one file per kind."""

from flyball_collectors.fleet.loads.base import Load as Load, Moment as Moment, Running as Running
from flyball_collectors.fleet.loads.batch import BatchLoad as BatchLoad
from flyball_collectors.fleet.loads.notebooks import NotebookLoad as NotebookLoad
from flyball_collectors.fleet.loads.service import ServiceLoad as ServiceLoad
from flyball_collectors.fleet.loads.training import TrainingLoad as TrainingLoad
