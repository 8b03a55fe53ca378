"""The workload lane: demand in; forecasts, plans and wishes out."""

from flyball_streams.engine.workload.lane import WorkloadLane as WorkloadLane
