"""NVIDIA GPUs through NVML; nothing here needs a privilege, and a call that hangs costs its own GPU alone."""

from flyball_collectors.nvml.calls.opening import Absent as Absent, open_nvml as open_nvml
from flyball_collectors.nvml.collector import NvmlCollector as NvmlCollector
from flyball_collectors.nvml.readings.processes import Process as Process
