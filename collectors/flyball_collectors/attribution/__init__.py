"""Attribution of each device and of the host to the workloads of this node.

``owner`` derives from a process's control groups which pod, job or container it belongs to; ``naming`` derives the
workload of that unit; ``shares`` divides the devices; ``collector`` combines them at each tick.
"""

from flyball_collectors.attribution.collector import AttributionCollector as AttributionCollector
