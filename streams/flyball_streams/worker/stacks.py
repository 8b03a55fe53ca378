"""Where the threads and tasks of a process stand, for the log of a worker that is ended because it is stuck."""

import asyncio
import faulthandler
import tempfile
import threading
from typing import Any


def stacks(loop: asyncio.AbstractEventLoop) -> str:
    """Return where all threads are, innermost calls first, and what each task of ``loop`` awaits, innermost last."""
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        threads = file.read()
    for thread in threading.enumerate():
        threads = threads.replace(f"0x{thread.ident:016x}", thread.name)
    return "\n".join([threads, *(f"Task {task.get_name()}:\n{_waits(task.get_coro())}" for task in _tasks(loop))])


def _tasks(loop: asyncio.AbstractEventLoop) -> list[asyncio.Task[Any]]:
    try:
        return sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    except RuntimeError:  # the loop kept starting and ending tasks
        return []


def _waits(coroutine: Any) -> str:
    """Each coroutine that the one before awaits, to the last one."""
    lines: list[str] = []
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is not None:
            code = frame.f_code
            lines.append(f'  File "{code.co_filename}", line {frame.f_lineno}, in {code.co_qualname}\n')
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
    return "".join(lines)
