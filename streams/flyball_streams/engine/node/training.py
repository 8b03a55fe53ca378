"""Which workloads are training: by their specification or, without one, by the profiles of their devices."""

import numpy as np
from numpy.typing import NDArray

from flyball_streams.engine.fleet_index import FleetIndex
from flyball_streams.engine.node.profile import Profiles
from flyball_streams.engine.node.tenancy import Tenancy

MOST = 0.8
"""Share of a workload's devices that must look like training."""


class TrainingWorkloads:
    """The training workloads of a cell; computed again when allocations, specifications or profiles change."""

    def __init__(self, directory: FleetIndex, profiles: Profiles) -> None:
        self.directory = directory
        self.profiles = profiles
        self._known: tuple[Tenancy, int, int, NDArray[np.bool_]] | None = None

    def of(self, tenancy: Tenancy) -> NDArray[np.bool_]:
        """Whether each of :attr:`Tenancy.workloads` is training; a new array whenever it may have changed."""
        versions = self.directory.version, self.profiles.trains_version
        known = self._known
        if known is None or known[0] is not tenancy or known[1:3] != versions:
            owner, count = tenancy.workload_of_slot, len(tenancy.workloads)
            held = owner >= 0
            like_it = np.bincount(owner[held], self.profiles.model.trains[: len(owner)][held], count)
            found = like_it >= MOST * np.maximum(tenancy.devices, 1)
            for index, workload in enumerate(tenancy.workloads):
                if (spec := self.directory.spec(workload)) is not None:
                    found[index] = spec.kind == "training"
            known = self._known = tenancy, *versions, found
        return known[3]
