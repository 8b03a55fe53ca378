"""Epoch and time of a node's last inventory, kept over restarts of the agent."""

from contextlib import suppress
from pathlib import Path

from flyball_collectors.agent.identity import file_name, state_folder
from flyball_collectors.kernel import text_of
from flyball_contracts.config import AgentConfig
from flyball_contracts.ids import MAX_TIME_NS


class LastInventory:
    """``epoch`` and ``time_ns`` of the last inventory of ``node``; 0 where none is known.

    They are kept in the agent's state folder and in memory. If the folder cannot be used, they last as long as the
    process; the agent warns of that when it counts its start.
    """

    def __init__(self, config: AgentConfig, node: str) -> None:
        self._file = state_folder(config) / f"inventory-{file_name(node)}"
        self.epoch, self.time_ns = _parse(text_of(self._file))

    def advance(self, time_ns: int, *, least_epoch: int = 0) -> None:
        """Advance to the next inventory; its time is ``time_ns``, or the previous one's if that is later."""
        self.epoch, self.time_ns = max(self.epoch + 1, least_epoch), max(self.time_ns, time_ns)
        fresh = Path(f"{self._file}.new")
        with suppress(OSError):
            fresh.write_text(f"{self.epoch} {self.time_ns}\n", encoding="ascii")
            fresh.replace(self._file)


def _parse(text: str) -> tuple[int, int]:
    words = text.split()
    if len(words) != 2 or not all(word.isdecimal() and len(word) <= len(str(MAX_TIME_NS)) for word in words):
        return 0, 0
    epoch, time_ns = map(int, words)
    return (epoch, time_ns) if max(epoch, time_ns) < MAX_TIME_NS else (0, 0)
