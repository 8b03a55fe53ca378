"""The host: CPU, memory, pressure, disks and network, read from ``/proc`` and ``/sys``.

Each source is a function from a root folder to values by metric key. Metrics that the kernel lacks are left out;
counters of the layout are cumulative, and split by instance (disk, interface) if instances can appear and disappear.
"""

from flyball_collectors.host.collector import HostCollector as HostCollector
from flyball_collectors.host.numa import NumaCollector as NumaCollector
