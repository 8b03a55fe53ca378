"""Signal handling of commands, and output of characters that the locale lacks."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

AGAIN_S = 0.02
_lost = sys.unraisablehook
received: list[int] = []
"""Signals for which :func:`end_command` has raised; a module may have caught that exception during its import."""


class Ended(SystemExit):
    """A signal asks the command to end; the exit status is 128 and the signal's number, as in a shell."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = number


def handle(function: Callable[[int, FrameType | None], object]) -> None:
    """Call ``function`` on SIGINT and SIGTERM; SIGHUP becomes SIGTERM, and ignored signals stay ignored."""
    for number, handler in (
        (signal.SIGINT, function),
        (signal.SIGTERM, function),
        (signal.SIGHUP, _hang_up),  # sent when the terminal closes; ignored under nohup
    ):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)
    sys.unraisablehook = _raised_again


def end_process(number: int, _frame: FrameType | None) -> None:
    """End at once: nothing was started yet, and an exception would show the traceback of an import."""
    os._exit(128 + number)


def end_command(number: int, _frame: FrameType | None) -> None:
    """End by an exception, so that the command cleans up."""
    received.append(number)
    raise Ended(number)


def write_anything() -> None:
    """Replace characters that the locale lacks by question marks instead of an error."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None and (stream.errors == "strict" or stream.encoding == "ascii"):
            reconfigure(errors="replace")


def _hang_up(_number: int, _frame: FrameType | None) -> None:
    signal.raise_signal(signal.SIGTERM)  # handled by the handler that is installed by now


def _raised_again(lost: "sys.UnraisableHookArgs") -> None:
    """Repeat a signal whose exception got lost in a callback of the interpreter, as happens during imports."""
    if isinstance(lost.exc_value, Ended):
        again = threading.Timer(AGAIN_S, os.kill, (os.getpid(), lost.exc_value.number))
        again.daemon = True
        again.start()
    else:
        _lost(lost)
