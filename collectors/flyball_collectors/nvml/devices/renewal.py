"""A new session of NVML, which may take long to begin."""

from collections.abc import Iterable

from flyball_collectors.nvml.calls.library import Library, NvmlError
from flyball_collectors.nvml.devices.gpu import GpuReader
from flyball_collectors.nvml.events.watch import EventWatch

SESSION = "NVML session"
"""Name of the job that runs a renewal."""


class Renewal:
    """Starts NVML again, for a node where the kernel lists the GPUs ``listed``.

    ``readers`` are of the session before, and ``same`` is whether the new one is for the same GPUs. After :meth:`run`,
    ``count`` is the number of GPUs, ``None`` with the reason in ``problem`` if NVML did not begin.
    """

    def __init__(self, listed: frozenset[str], readers: Iterable[GpuReader], *, same: bool) -> None:
        self.listed = listed
        self.same = same
        self.count: int | None = None
        self.problem = ""
        self._readers = list(readers)

    def run(self, library: Library, watch: EventWatch) -> None:
        """Restart NVML: a session shows only the GPUs that were there when it began."""
        watch.close()
        for reader in self._readers:
            reader.close()
        library.stop()
        try:
            library.start()
            count = library.count()
        except NvmlError as error:
            self.problem = str(error)
            return
        watch.again()
        self.count = count
