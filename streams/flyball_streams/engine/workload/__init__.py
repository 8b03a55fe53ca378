"""The workload lane: demand in; forecasts, plans and proposals out."""

from flyball_streams.engine.workload.lane import WorkloadLane as WorkloadLane
