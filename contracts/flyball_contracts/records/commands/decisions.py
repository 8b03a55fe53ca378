"""All kinds of decision, for readers that take any of them."""

from typing import Literal, get_args

from flyball_contracts.records.commands.kinds.check import Check
from flyball_contracts.records.commands.kinds.migrate import Migrate
from flyball_contracts.records.commands.kinds.preempt import Preempt
from flyball_contracts.records.commands.kinds.scale import Scale

AnyDecision = Scale | Migrate | Preempt | Check
DecisionType = Literal["Scale", "Migrate", "Preempt", "Check"]
DECISION_TYPES: tuple[DecisionType, ...] = get_args(DecisionType)
