"""Entry point of the ``flyball`` command: signals and output are set up before anything else is imported."""

import os
import sys

TYPE_CHECKING = False  # no signal is handled during these imports, and importing typing is slow
if TYPE_CHECKING:
    from types import TracebackType

INTERRUPTED = 130
_shown = sys.excepthook


def main() -> None:
    """Import the command and run it."""
    sys.excepthook = _quiet
    # NumPy, once imported, would start threads for matrix products, which spin for longer than they compute.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from flyball_cli.signals import end_command, end_process, handle, write_anything

    handle(end_process)
    write_anything()
    from flyball_cli.main import main as run

    handle(end_command)
    run()


def _quiet(kind: type[BaseException], error: BaseException, trace: "TracebackType | None") -> None:
    """Suppress the traceback of Ctrl-C, which may come before it is handled."""
    if issubclass(kind, KeyboardInterrupt):
        os._exit(INTERRUPTED)
    _shown(kind, error, trace)
