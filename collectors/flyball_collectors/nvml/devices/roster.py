"""The GPUs of a node, and their connections."""

import logging
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from flyball_collectors.nvml.calls.gate import DeviceLost, Gate
from flyball_collectors.nvml.calls.library import Library, NvmlError
from flyball_collectors.nvml.calls.workers import Workers
from flyball_collectors.nvml.devices.gpu import GpuReader
from flyball_collectors.nvml.devices.renewal import SESSION, Renewal
from flyball_collectors.nvml.devices.topology import Wires
from flyball_collectors.nvml.events.watch import EventWatch

_LOG = logging.getLogger(__name__)
_PATIENCE_S = 4.0  # the first calls about a GPU may wake it
_NVML = "NVML"  # for calls about no GPU in particular
_MOST_LOOKS = 32


class Change(NamedTuple):
    """UUIDs of added and removed GPUs."""

    added: list[str]
    gone: list[str]


class Roster:
    """The GPUs by name (``GPU 0``), in the order of their indexes.

    ``unreadable`` says by name why others never returned an identity; :meth:`look` retries them.
    """

    def __init__(self, library: Library, watch: EventWatch, workers: Workers, root: Path) -> None:
        self.readers: dict[str, GpuReader] = {}
        self.unreadable: dict[str, str] = {}
        self.wires: dict[str, Wires] = {}
        self._library = library
        self._watch = watch
        self._workers = workers
        self._root = root
        self._count = 0
        self._kernel: frozenset[str] | None = self._listed()  # as the session began; None if it has not begun
        self._renewal: Renewal | None = None
        self._problem = ""
        self._lost_looks, self._again_after = 0, 1

    @property
    def paused(self) -> bool:
        """Whether NVML is still being started again: the readers keep their rows and must not read."""
        return self._renewal is not None

    def look(self, count: int | None = None, *, lost: bool = False) -> Change:
        """Find GPUs that were added or removed; queries NVML unless ``count`` is given.

        Nothing is searched while a call about a GPU hangs. A GPU that stays ``lost`` may have been reset in place,
        which only a new session of NVML shows: one is started after 1 look, then after 2, 4 and so on up to 32. A
        session that takes longer than a few seconds to start is used from the first look after it is ready.
        """
        if self._workers.stuck():
            return Change([], [])
        before = {reader.uuid: reader for reader in self.readers.values()}
        if self._renewal is None:
            self._renewal = self._due(lost=lost)
            if self._renewal is not None:
                self._workers.run({SESSION: partial(self._renewal.run, self._library, self._watch)}, 2 * _PATIENCE_S)
                if SESSION in self._workers.stuck():
                    return Change([], [])
        if self._renewal is not None:
            count = self._renewal.count
            self._use(self._renewal)
            self._renewal = None
        elif count is None:
            count = self._workers.run({_NVML: self._count_gpus}, _PATIENCE_S).get(_NVML)
        if count is not None and (count != self._count or self.unreadable):
            fresh = range(count) if count != self._count else [int(name.split()[1]) for name in self.unreadable]
            self._count = count
            self._open(fresh, count)
        now = {reader.uuid: reader for reader in self.readers.values()}
        added = [uuid for uuid in now if uuid not in before]
        gone = [uuid for uuid in before if uuid not in now]
        if any(before.get(uuid) is not reader for uuid, reader in now.items()) or gone:
            self._connect()
        return Change(added, gone)

    def close(self) -> None:
        """Release the readers, except those that a hung call still uses."""
        for name, reader in self.readers.items():
            if not self.paused and name not in self._workers.stuck():
                reader.close()

    def _listed(self) -> frozenset[str]:
        """GPUs that the driver in the kernel knows, by PCI address; empty where it has no list."""
        folder = self._root / "proc/driver/nvidia/gpus"
        try:
            return frozenset(path.name for path in folder.iterdir())
        except OSError:
            return frozenset()

    def _due(self, *, lost: bool) -> Renewal | None:
        """A new session of NVML, if one is needed: for other GPUs, or for the same if one may have been reset."""
        listed = self._listed()
        if listed != self._kernel:
            return Renewal(listed, self.readers.values(), same=False)
        return Renewal(listed, self.readers.values(), same=True) if self._is_reset_due(lost=lost) else None

    def _is_reset_due(self, *, lost: bool) -> bool:
        if not lost:
            self._lost_looks, self._again_after = 0, 1
            return False
        self._lost_looks += 1
        if self._lost_looks <= self._again_after:
            return False
        self._lost_looks, self._again_after = 0, min(2 * self._again_after, _MOST_LOOKS)
        return True

    def _use(self, renewal: Renewal) -> None:
        """Open the same GPUs in the new session; one that does not respond keeps its row.

        If the GPUs differ from those before, or may differ, none is opened.
        """
        if renewal.problem and renewal.problem != self._problem:
            _LOG.warning("NVML does not begin again: %s", renewal.problem)
        self._problem = renewal.problem
        begun = renewal.count is not None
        before, self.readers, self.unreadable, self._count = self.readers, {}, {}, 0
        if not renewal.same:  # the kernel may list the same GPUs as before by the time that NVML begins
            self._kernel = renewal.listed if begun else None
            return
        jobs = {name: partial(self._open_one, old.index) for name, old in before.items()} if begun else {}
        answers = self._workers.run(jobs, _PATIENCE_S)
        for name, old in before.items():
            fresh = answers.get(name, "it does not answer" if begun else "NVML does not begin again")
            if isinstance(fresh, GpuReader):
                self.readers[name] = fresh
            else:
                old.abandon(fresh)
                self.readers[name] = old
        self._count = len(before)

    def _open(self, indexes: Iterable[int], count: int) -> None:
        jobs = {f"GPU {index}": partial(self._open_one, index) for index in indexes}
        answers = self._workers.run(jobs, _PATIENCE_S)
        known = {reader.uuid: reader for reader in self.readers.values()}
        at_place, self.readers = self.readers, {}
        unreadable, self.unreadable = self.unreadable, {}
        for name in (f"GPU {index}" for index in range(count)):
            answer = (
                answers.get(name, "it does not answer") if name in jobs else at_place.get(name, unreadable.get(name))
            )
            if isinstance(answer, GpuReader):
                self.readers[name] = self._kept(answer, known)
            elif answer is not None:
                old = at_place.get(name)
                if old is not None and old.uuid in known:  # it was there before, so it keeps its row
                    self.readers[name] = known.pop(old.uuid)
                    continue
                if name not in unreadable:
                    _LOG.warning("%s cannot be read and is left out: %s", name, answer)
                self.unreadable[name] = answer
        for reader in known.values():
            reader.close()

    def _kept(self, reader: GpuReader, known: dict[str, GpuReader]) -> GpuReader:
        old = known.pop(reader.uuid, None)
        if old is None:
            return reader
        if old is not reader:
            old.index = reader.index
            reader.close()
        return old

    def _open_one(self, index: int) -> GpuReader | str:
        try:
            reader = GpuReader(Gate(self._library, self._library.handle(index)), index, self._root)
            self._watch.add(reader.uuid, reader.gate.handle)
            return reader
        except (NvmlError, DeviceLost) as error:
            return str(error)

    def _count_gpus(self) -> int | None:
        try:
            return self._library.count()
        except NvmlError as error:
            _LOG.debug("%s", error)
            return None

    def _connect(self) -> None:
        """Query the connections of the GPUs; a GPU that does not respond keeps its known ones."""
        answering = {name: reader for name, reader in self.readers.items() if not reader.abandoned}
        handles = {reader.uuid: reader.gate.handle for reader in answering.values()}

        def wires(reader: GpuReader) -> Wires | None:
            try:
                return reader.wires({uuid: handle for uuid, handle in handles.items() if uuid > reader.uuid})
            except DeviceLost:
                return None

        answers = self._workers.run({name: partial(wires, reader) for name, reader in answering.items()}, _PATIENCE_S)
        found = {reader.uuid: answers.get(name) for name, reader in answering.items()}
        before = self.wires
        self.wires = {
            reader.uuid: one
            for reader in self.readers.values()
            if (one := found.get(reader.uuid) or before.get(reader.uuid)) is not None
        }
