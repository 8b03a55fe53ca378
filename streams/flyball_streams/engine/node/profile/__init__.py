"""What the devices of a cell do, how full their memory gets, and which of their time is wasted."""

from flyball_streams.engine.node.profile.profiles import Profiles as Profiles
