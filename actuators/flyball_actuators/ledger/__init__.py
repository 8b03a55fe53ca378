"""Ledgers of executed decisions: the file of one actuator, and the outcomes topic, shared by a group's actuators."""

from flyball_actuators.ledger.cell_grants import CellGrants as CellGrants
from flyball_actuators.ledger.ends import ends_of as ends_of
from flyball_actuators.ledger.file import Ledger as Ledger
from flyball_actuators.ledger.lines import NotWrittenError as NotWrittenError
from flyball_actuators.ledger.outcome_index import (
    DecisionOutcomes as DecisionOutcomes,
    OutcomeIndex as OutcomeIndex,
    grant_of as grant_of,
)
from flyball_actuators.ledger.outcome_log import OutcomeLog as OutcomeLog
