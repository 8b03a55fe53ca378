"""The cluster's own autoscaler as a platform: it asks how many replicas to run, and Flyball writes nothing."""

from flyball_actuators.platforms.autoscaler.platform import AutoscalerPlatform as AutoscalerPlatform
