"""Kueue: gangs admitted where and when Flyball says, suspended and resumed by the queue that owns them."""

from flyball_actuators.platforms.kueue.platform import KueuePlatform as KueuePlatform
