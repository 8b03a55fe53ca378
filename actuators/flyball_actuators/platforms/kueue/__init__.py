"""Driver ``kueue``: starts and stops jobs through their queue, and places gangs through an admission check."""

from flyball_actuators.platforms.kueue.platform import KueuePlatform as KueuePlatform
