"""A simulated GPU fleet that sends what real agents and feeds send."""

from flyball_collectors.fleet.fleet import Fleet as Fleet
from flyball_collectors.fleet.run import FleetReport as FleetReport, run_fleet as run_fleet
from flyball_collectors.fleet.scaled import scaled as scaled
