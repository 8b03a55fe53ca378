"""Groups symptoms into incidents, one for each root cause, and quarantines unhealthy nodes."""

from flyball_streams.engine.cell.incidents.manager import IncidentManager as IncidentManager
