"""Who runs on this node and what part of each device and of the host is theirs.

``owner`` finds from a process's control groups which pod, job or container it is in; ``naming`` what workload
that is; ``shares`` divides the devices; ``collector`` does it all at each tick.
"""

from flyball_collectors.attribution.collector import AttributionCollector as AttributionCollector
