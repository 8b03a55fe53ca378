"""NVIDIA GPUs through NVML; needs no privilege, and a call that hangs affects only its own GPU."""

from flyball_collectors.nvml.calls.opening import Absent as Absent, open_nvml as open_nvml
from flyball_collectors.nvml.collector import NvmlCollector as NvmlCollector
