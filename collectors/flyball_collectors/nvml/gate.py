"""The one gate through which every NVML call about a device goes."""

import logging
from typing import Any

_LOG = logging.getLogger(__name__)

# Return codes of nvml.h, which nvidia-ml-py carries as numbers on its errors.
SUCCESS = 0
LOST = frozenset({1, 9, 15, 16, 28})  # uninitialised, driver not loaded, lost, reset required, not found
NEVER = frozenset({3, 4, 13, 22, 25, 26})  # not supported, no permission, no such function, version, deprecated


class DeviceLost(Exception):
    """The device no longer answers; nothing more can be asked of it in this read."""


class Gate:
    """Calls about one device.

    An answer that will never come (not supported, not permitted, unknown to this driver) is remembered and
    not asked for again. Any other failure costs one value and is counted in ``errors`` by call.
    """

    def __init__(self, nvml: Any, handle: Any) -> None:
        self.handle = handle
        self.errors: dict[str, int] = {}
        self.never: set[tuple[object, ...]] = set()
        self._nvml = nvml
        self._failed: type[Exception] = nvml.NVMLError

    def ask(self, name: str, *args: object) -> Any:
        """Answer of one NVML function by name, ``None`` where there is none.

        What is remembered is the name and the first argument, which in NVML says what kind of value is meant.
        Raises :class:`DeviceLost` when the device is gone.
        """
        key = (name, *args[:1])
        if key in self.never:
            return None
        try:
            return getattr(self._nvml, name)(self.handle, *args)
        except self._failed as error:
            code = int(getattr(error, "value", 999))
            if code in LOST:
                raise DeviceLost(f"{name}: {error}") from error
            if code in NEVER:
                self.never.add(key)
                _LOG.debug("%s%s is not to be had here: %s", name, args, error)
            else:
                self.errors[name] = self.errors.get(name, 0) + 1
        except AttributeError:  # nvidia-ml-py is older than the function
            self.never.add(key)
        return None

    def first(self, *calls: tuple[object, ...]) -> Any:
        """First answer among several calls, the preferred one first; ``None`` where none has one."""
        for name, *args in calls:
            answer = self.ask(str(name), *args)
            if answer is not None:
                return answer
        return None
