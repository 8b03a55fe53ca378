"""The host: CPU, memory, pressure, disks and network, read from ``/proc`` and ``/sys``.

Each source is a function from a root folder to values by metric key. A metric that the kernel does not have is
left out; a value is cumulative where the layout says ``counter``, and split by instance (disk, interface) where
instances come and go.
"""

from flyball_collectors.host.collector import HostCollector as HostCollector
from flyball_collectors.host.numa import NumaCollector as NumaCollector
