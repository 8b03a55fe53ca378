"""The kernel log as a source of events: errors of the GPU driver, the memory controllers and PCIe."""

from flyball_collectors.kmsg.collector import KernelLog as KernelLog, open_kmsg as open_kmsg
from flyball_collectors.kmsg.event_merger import EventMerger as EventMerger
