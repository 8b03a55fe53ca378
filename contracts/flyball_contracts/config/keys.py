"""Configuration of the keys that may sign decisions."""

from flyball_contracts.config.base import Section
from flyball_contracts.config.policies import Patterns
from flyball_contracts.records.commands.outcomes import DecisionType


class DecisionKey(Section, frozen=True, kw_only=True):
    """A public key and the decisions that it may sign: cells and workloads by glob patterns, types by name.

    Empty ``types`` mean all. ``public`` is the base64 of its 32 bytes, as ``flyball keys show`` prints it.
    """

    public: str
    cells: Patterns = ("*",)
    workloads: Patterns = ("*",)
    types: tuple[DecisionType, ...] = ()
