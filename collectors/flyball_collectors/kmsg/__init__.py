"""The kernel log as a source of events: what the GPU driver, the memory controllers and PCIe complain of."""

from flyball_collectors.kmsg.collector import KernelLog as KernelLog, open_kmsg as open_kmsg
from flyball_collectors.kmsg.event_merger import EventMerger as EventMerger
