"""Driver ``autoscaler``: the cluster's autoscaler requests the number of replicas.

Flyball writes nothing to the cluster.
"""

from flyball_actuators.platforms.autoscaler.platform import AutoscalerPlatform as AutoscalerPlatform
