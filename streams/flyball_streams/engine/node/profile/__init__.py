"""What the devices of a cell do, what their memory comes to, and what of them is wasted."""

from flyball_streams.engine.node.profile.profiles import Profiles as Profiles
