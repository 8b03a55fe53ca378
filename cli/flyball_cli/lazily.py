"""Modules that a library imports and a command never uses."""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType


class ImportWhenUsed:
    """Executes a module only when one of its attributes is used, or a second module imports it.

    Not for a module that several threads may use first at once: :class:`importlib.util.LazyLoader` takes no lock.
    """

    def __init__(self, *names: str) -> None:
        self._names = names

    def install(self) -> None:
        """Insert this finder before all others."""
        sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Specification of one of the modules; ``None`` for any other."""
        spec = PathFinder.find_spec(fullname, path, target) if fullname in self._names else None
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec
