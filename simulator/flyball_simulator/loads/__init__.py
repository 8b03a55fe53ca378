"""Loads of the simulated workloads, one file per kind."""

from flyball_simulator.loads.base import Load as Load, Moment as Moment, Running as Running
from flyball_simulator.loads.batch import BatchLoad as BatchLoad
from flyball_simulator.loads.notebooks import NotebookLoad as NotebookLoad
from flyball_simulator.loads.service import ServiceLoad as ServiceLoad
from flyball_simulator.loads.training import TrainingLoad as TrainingLoad
