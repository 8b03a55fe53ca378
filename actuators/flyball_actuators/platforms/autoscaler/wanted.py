"""How many replicas autoscalers are to run: what decisions said last, and otherwise what there is."""

import time
from threading import Lock
from typing import NamedTuple

from flyball_actuators.platforms.base import Rejected
from flyball_actuators.platforms.kubernetes.targets import Target, Targets


class Word(NamedTuple):
    """What a decision asks of a target, and until when, in wall-clock ns since the Unix epoch, it may take."""

    decision: str
    replicas: int
    until_ns: int


class Wanted:
    """What an autoscaler is told of a target that it asks for; several threads may use it.

    A decision's word stands until its operation has ended. Without one, the answer is the number of replicas that the
    object has: the autoscaler then leaves it alone, also after a restart.
    """

    def __init__(self, targets: Targets, namespaces: tuple[str, ...]) -> None:
        self._targets, self._namespaces = targets, frozenset(namespaces)
        self._lock = Lock()
        self._words: dict[Target, Word] = {}
        self._asked_ns: dict[Target, int] = {}

    def tell(self, target: Target, word: Word) -> Word:
        """Take a word, unless a later one stands; the one that stands now."""
        with self._lock:
            stands = self._words.get(target)
            if stands is None or stands.until_ns < word.until_ns:
                stands = self._words[target] = word
            return stands

    def drop(self, target: Target, decision: str) -> None:
        """End the word of a decision."""
        with self._lock:
            stands = self._words.get(target)
            if stands is not None and stands.decision == decision:
                del self._words[target]

    def asked_ns(self, target: Target) -> int | None:
        """When an autoscaler last asked for a target, in ns since the Unix epoch; ``None``: never since the start."""
        with self._lock:
            return self._asked_ns.get(target)

    def answer(self, target: Target) -> int | Rejected:
        """Replicas that an autoscaler is told, or why there is no answer.

        Raises :class:`PlatformError` when the API server does not tell what there is.
        """
        if target.namespace not in self._namespaces:
            return Rejected(
                "unknown_target", f"namespace {target.namespace} is not in actuator.platforms[].namespaces; add it"
            )
        with self._lock:
            self._asked_ns[target] = time.time_ns()
            word = self._words.get(target)
        if word is not None:
            return word.replicas
        thing = self._targets.read(target)
        return thing if isinstance(thing, Rejected) else target.of.show(thing).replicas
