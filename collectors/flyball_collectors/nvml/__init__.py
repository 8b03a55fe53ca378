"""NVIDIA GPUs through NVML, by way of nvidia-ml-py; nothing here needs a privilege or blocks."""

from flyball_collectors.nvml.collector import Absent as Absent, NvmlCollector as NvmlCollector, open_nvml as open_nvml
