"""A simulated GPU fleet that sends the messages of real agents and feeds."""

from flyball_simulator.fleet import Fleet as Fleet
from flyball_simulator.scaled import scaled as scaled
from flyball_simulator.service.run import run_fleet as run_fleet
from flyball_simulator.service.sender import FleetReport as FleetReport
