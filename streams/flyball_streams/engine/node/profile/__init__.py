"""Profiles of devices, warnings of memory that fills up, and GPU time that is wasted."""

from flyball_streams.engine.node.profile.profiles import Profiles as Profiles
