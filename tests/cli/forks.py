"""A process that has imported what commands import, and forks one for each: `python -m tests.cli.forks SOCKET PARENT`.

The child has arguments, folder, environment, output and exit status of its own, and ends as the interpreter ends; only
the time to import is saved. Each connection to the socket, an open file, brings one command as a line of JSON; back go
the child's pid and then its exit status. What a command names to be imported is imported before the first such fork.
"""

import atexit
import gc
import importlib
import json
import os
import pkgutil
import runpy
import socket
import socketserver
import sys
import threading
from typing import Any, NoReturn, cast

from flyball_cli import commands

IMPORTED = ("jax.numpy", "polars", "confluent_kafka", "rich.console", "rich.table", "scipy.optimize")
APPEND = os.O_WRONLY | os.O_APPEND


class OneCommand(socketserver.StreamRequestHandler):
    """A connection; it has a process of its own, which waits for the command."""

    def handle(self) -> None:
        pid = os.fork()
        if pid == 0:
            run(**cast(Forks, self.server).wanted)
        self.wfile.write(f"{pid}\n".encode())
        self.wfile.write(f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n".encode())


class Forks(socketserver.ForkingMixIn, socketserver.UnixStreamServer):
    """It ends with the process that has started it."""

    def __init__(self, listening: socket.socket, parent: int) -> None:
        super().__init__("", OneCommand, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.parent = parent
        self.wanted: dict[str, Any] = {}

    def process_request(self, request: Any, client_address: Any) -> None:
        """Import what the command asks for, and fork."""
        with request.makefile("rb") as line:
            self.wanted = json.loads(line.readline())
        for name in self.wanted.pop("imports"):
            importlib.import_module(name)
        gc.freeze()
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        super().service_actions()
        if os.getppid() != self.parent:
            os._exit(0)


def run(
    module: str, arguments: list[str], folder: str, environment: dict[str, str], output: str, errors: str
) -> NoReturn:
    """Be the process that a user has started."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, path, flags in ((0, os.devnull, os.O_RDONLY), (1, output, APPEND), (2, errors, APPEND)):
        file = os.open(path, flags)
        os.dup2(file, number)
        os.close(file)
    sys.argv = [module, *arguments]
    sys.modules.pop(module, None)
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        end(ended.code)
    except BaseException:
        sys.excepthook(*cast(Any, sys.exc_info()))
        end(1)
    end(0)


def end(status: object) -> NoReturn:
    """End as the interpreter does, but leave its modules to the kernel: to take them down costs more than a command."""
    if status is not None and not isinstance(status, int):
        print(status, file=sys.stderr)
        status = 1
    cast(Any, threading)._shutdown()
    cast(Any, atexit)._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status or 0)


if __name__ == "__main__":
    for module in pkgutil.walk_packages(commands.__path__, f"{commands.__name__}."):
        importlib.import_module(module.name)
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()
    Forks(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])).serve_forever()
