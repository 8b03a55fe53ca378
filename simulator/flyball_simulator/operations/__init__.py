"""How the platform carries out decisions: one file per kind, and the ledger that runs them."""

from flyball_simulator.operations.base import Refused as Refused
from flyball_simulator.operations.ledger import Ledger as Ledger
