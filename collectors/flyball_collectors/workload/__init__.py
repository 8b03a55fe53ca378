"""Replicas' reports of their work: metrics pages of servers, lines and logs of training jobs."""

from flyball_collectors.workload.collector import WorkloadCollector as WorkloadCollector
