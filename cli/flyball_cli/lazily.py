"""Modules that a library imports and a command never uses."""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType


class ImportWhenUsed:
    """Executes modules only once something of them is used, or a second module imports them.

    Not for a module that several threads may be the first to use: :class:`importlib.util.LazyLoader` takes no lock.
    """

    def __init__(self, *names: str) -> None:
        self._names = names

    def install(self) -> None:
        """Be asked before the other finders."""
        sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Specification of one of the modules; ``None`` for any other."""
        spec = PathFinder.find_spec(fullname, path, target) if fullname in self._names else None
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec
