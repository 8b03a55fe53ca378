"""Configuration of Flyball's part in a queue of jobs."""

from flyball_contracts.config.base import NotNegative, Section


class QueueConfig(Section, frozen=True):
    """Which AdmissionCheck of Kueue is Flyball's; empty: none, so that nothing is said about where a gang runs.

    A gang that has quota waits ``hold_s`` for a decision, and is then let in where Kueue likes.
    """

    check: str = ""
    hold_s: NotNegative = 300.0
