"""Fingerprints of workloads as rows of one array, so that one is compared with all others at once."""

from collections.abc import Sequence

import numpy as np

from flyball_models.profile.course import FEATURES
from flyball_models.profile.kinds import Table
from flyball_models.profile.likeness import similarities


class Fingerprints:
    """Standardised features by workload; derived from the profiles, so they are not state."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.names: list[str] = []
        self._rows: dict[str, int] = {}
        self._values = np.empty((0, len(FEATURES)))

    def put(self, name: str, fingerprint: Sequence[float | None]) -> None:
        """Set the features of a workload, ``None`` where unknown."""
        row = self._rows.setdefault(name, len(self.names))
        if row == len(self.names):
            self.names.append(name)
            if row == len(self._values):
                self._values = np.concatenate([self._values, np.empty((max(16, row), len(FEATURES)))])
        self._values[row] = np.array(fingerprint, np.float64)

    def drop(self, name: str) -> None:
        """Remove a workload if it is here; the last one gets its row."""
        row = self._rows.pop(name, None)
        if row is None:
            return
        last = self.names.pop()
        if last != name:
            self.names[row], self._rows[last] = last, row
            self._values[row] = self._values[len(self.names)]

    def similar(self, name: str, least: float) -> list[tuple[str, float]]:
        """Other workloads with at least this similarity 0..1 to one, the most similar first, then by name."""
        others = self._values[: len(self.names)]
        found = similarities(others[self._rows[name]], others.T, self.table)
        rows: list[int] = np.flatnonzero(found >= least).tolist()
        pairs = [(self.names[row], float(found[row])) for row in rows if self.names[row] != name]
        return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))
