"""NVML without a binding.

nvidia-ml-py allocates its arguments for each call, which is most of the cost of a read; and setting argument types on
its functions would break it for others in the process. So the library is opened again here, and callers keep their own
buffers.
"""

import ctypes
from ctypes import byref, c_char_p, c_uint, c_void_p

from flyball_collectors.nvml.binding import Binding, NoBinding

LIBRARY = "libnvidia-ml.so.1"

# Return codes of nvml.h.
SUCCESS = 0
UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, INSUFFICIENT_SIZE = 1, 2, 3, 4, 6, 7
DRIVER_NOT_LOADED, TIMEOUT, LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND, GPU_IS_LOST = 9, 10, 12, 13, 15
RESET_REQUIRED, VERSION_MISMATCH, NO_DATA, VGPU_ECC_NOT_SUPPORTED = 16, 18, 21, 22
ARGUMENT_VERSION_MISMATCH, DEPRECATED, GPU_NOT_FOUND = 25, 26, 28


class NvmlError(Exception):
    """NVML refused a call; ``code`` is its return code."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(what)
        self.code = code


class Library:
    """The driver's library by name or path.

    Arguments are passed as ctypes sees them: pointers and 64-bit numbers must be ctypes objects, an ``int`` is 32
    bits. A call lets other threads run. Raises :class:`NvmlError` when there is no such library.
    """

    def __init__(self, name: str = LIBRARY) -> None:
        self.mismatched: set[str] = set()
        """Functions that refused the version of our struct."""
        self._binding: Binding | str | None = None
        try:
            self.functions = ctypes.CDLL(name)
        except OSError as error:
            raise NvmlError(LIBRARY_NOT_FOUND, str(error)) from error

    def call(self, name: str, *args: object) -> int:
        """Return code of a function, ``FUNCTION_NOT_FOUND`` if the driver is older."""
        function = getattr(self.functions, name, None)
        return FUNCTION_NOT_FOUND if function is None else int(function(*args))

    def check(self, name: str, *args: object) -> None:
        """Call a function; raises :class:`NvmlError` unless it succeeds."""
        code = self.call(name, *args)
        if code != SUCCESS:
            raise NvmlError(code, f"{name}: {self.text_of(code)}")

    def text_of(self, code: int) -> str:
        """Text of a return code."""
        function = getattr(self.functions, "nvmlErrorString", None)
        if function is None:
            return f"NVML error {code}"
        function.restype = c_char_p
        text: bytes | None = function(code)
        return (text or b"").decode(errors="replace") or f"NVML error {code}"

    def start(self) -> None:
        """Start NVML, even if a GPU is faulty."""
        self.check("nvmlInitWithFlags", 0)

    def binding(self) -> Binding | str:
        """NVIDIA's own binding, opened at the first call, or why it is not available."""
        if self._binding is None:
            try:
                self._binding = Binding()
            except NoBinding as error:
                self._binding = str(error)
        return self._binding

    def stop(self) -> None:
        """Shut NVML down."""
        if isinstance(self._binding, Binding):
            self._binding.close()
        self._binding = None
        self.call("nvmlShutdown")

    def count(self) -> int:
        """Number of GPUs."""
        count = c_uint()
        self.check("nvmlDeviceGetCount_v2", byref(count))
        return count.value

    def handle(self, index: int) -> c_void_p:
        """Handle of the GPU at ``index``."""
        handle = c_void_p()
        self.check("nvmlDeviceGetHandleByIndex_v2", index, byref(handle))
        return handle

    def driver_version(self) -> str:
        """Version of the driver, or empty."""
        text = ctypes.create_string_buffer(80)
        if self.call("nvmlSystemGetDriverVersion", text, len(text)) != SUCCESS:
            return ""
        return text.value.decode(errors="replace")
