"""The gate through which every NVML call about a device goes."""

import logging
from collections.abc import Mapping
from ctypes import byref, c_uint, c_void_p, create_string_buffer

from flyball_collectors.nvml.calls.library import (
    ARGUMENT_VERSION_MISMATCH,
    DEPRECATED,
    DRIVER_NOT_LOADED,
    FUNCTION_NOT_FOUND,
    GPU_IS_LOST,
    GPU_NOT_FOUND,
    INSUFFICIENT_SIZE,
    NO_DATA,
    NO_PERMISSION,
    NOT_FOUND,
    NOT_SUPPORTED,
    RESET_REQUIRED,
    SUCCESS,
    UNINITIALIZED,
    VGPU_ECC_NOT_SUPPORTED,
    Library,
)

_LOG = logging.getLogger(__name__)

LOST = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, GPU_IS_LOST, RESET_REQUIRED, GPU_NOT_FOUND})
NEVER = frozenset(
    {NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND, VGPU_ECC_NOT_SUPPORTED, ARGUMENT_VERSION_MISMATCH, DEPRECATED}
)
_PLAIN = frozenset({NOT_FOUND, INSUFFICIENT_SIZE, NO_DATA})  # answers, not failures


class DeviceLost(Exception):
    """The device no longer responds; this read stops."""


class Gate:
    """Calls about one device, by one thread at a time.

    A permanent failure (not supported, not permitted, unknown to this driver) is remembered and not requested again.
    Any other failure costs one value and is counted in ``errors`` by call. ``code`` is the return code of the last
    call. ``unread`` are functions whose struct is unknown in the driver's version.
    """

    def __init__(self, library: Library, handle: c_void_p) -> None:
        self.library = library
        self.handle = handle
        self.code = SUCCESS
        self.errors: dict[str, int] = {}
        self.never: set[object] = set()
        self.unread: set[str] = set()
        self._mismatched: set[str] = set()
        self._functions = library.functions
        self._number = c_uint()
        self._number_at = byref(self._number)

    def call(self, name: str, *args: object) -> bool:
        """Call the function ``name``, which fills the buffers among ``args``; return whether it succeeded.

        Failures are remembered by name, with the first argument if that is an ``int``, which in NVML selects the value.
        Raises :class:`DeviceLost` when the device is gone.
        """
        key: object = (name, args[0]) if args and type(args[0]) is int else name
        if key in self.never:
            return False
        try:
            code = self.code = getattr(self._functions, name)(self.handle, *args)
        except AttributeError:  # the driver is older than the function
            self.never.add(key)
            return False
        if code:
            self._refused(name, key, code)
        return not code

    def structure(self, name: str) -> Mapping[str, float] | None:
        """Members of the struct of a function that refused our version, through NVIDIA's own binding.

        ``None`` if the function did not refuse it, or if the binding cannot read the struct either.
        """
        if name not in self._mismatched:
            return None
        binding = self.library.binding()
        found = None if isinstance(binding, str) else binding.structure(name, self.handle)
        if found is None:
            self._mismatched.discard(name)
            self.unread.add(name)
        return found

    def number(self, name: str, *args: object) -> int | None:
        """Result of a function that returns one unsigned 32-bit number; ``None`` if it fails."""
        return self._number.value if self.call(name, *args, self._number_at) else None

    def text(self, name: str) -> str:
        """Result of a function that returns a text; empty if it fails."""
        text = create_string_buffer(96)
        return text.value.decode(errors="replace") if self.call(name, text, c_uint(len(text))) else ""

    def _refused(self, name: str, key: object, code: int) -> None:
        if code in LOST:
            raise DeviceLost(f"{name}: {self.library.text_of(code)}")
        if code == ARGUMENT_VERSION_MISMATCH:
            self._mismatched.add(name)
            self.library.mismatched.add(name)
        if code in NEVER:
            self.never.add(key)
            _LOG.debug("%s is not to be had here: %s", key, self.library.text_of(code))
        elif code not in _PLAIN:
            self.errors[name] = self.errors.get(name, 0) + 1
