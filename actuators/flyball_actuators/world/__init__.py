"""The world outside: workloads, inventories and people's orders from their topics, power limits, the kill switch."""

from flyball_actuators.world.kill_switch import stop_reason as stop_reason
from flyball_actuators.world.power_limits import PowerLimits as PowerLimits
from flyball_actuators.world.reader import WorldReader as WorldReader
from flyball_actuators.world.recently_held import RecentlyHeld as RecentlyHeld
from flyball_actuators.world.tables import WorldTables as WorldTables
