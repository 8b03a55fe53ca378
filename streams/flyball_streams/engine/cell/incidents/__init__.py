"""From symptoms to incidents: one for each event, the cause before what follows from it."""

from flyball_streams.engine.cell.incidents.desk import Desk as Desk
