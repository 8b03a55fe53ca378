"""The services of the demo as child processes."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

GRACE_S = 30.0
"""Kubernetes's default: a worker finishes what it has begun, which may be slow on a busy machine."""
ENDED = (-signal.SIGTERM, 128 + signal.SIGTERM)


class Child:
    """One service: a ``flyball`` command in a child process that ends with its parent, its output in a log file."""

    def __init__(self, name: str, arguments: list[str], folder: Path) -> None:
        self.name = name
        self.health_file = folder / f"{name}.health"
        self.log = folder / f"{name}.log"
        self._terminated = False
        self._out: IO[bytes] = self.log.open("wb")
        command = [sys.executable, "-P", "-m", "flyball_cli.demo.leash", str(os.getpid()), *arguments]
        environment = {**os.environ, "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "cpu")}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the parent, which ends its children in order
        )

    def failure(self) -> str | None:
        """Why the service is not running, with the end of its log; ``None`` if it runs, or ended normally."""
        status = self.process.poll()
        if not status or (self._terminated and status in ENDED):  # terminated before it had a handler
            return None
        how = f"with status {status}" if status > 0 else f"by {signal.Signals(-status).name}"
        folder, text = self.log.parent, self.tail()
        if shutil.disk_usage(folder).free == 0:
            text += f"  {folder} is on a full disk; make room there, or let TMPDIR name another folder"
        return f"{self.name} ended {how}:\n{text}"

    def tail(self, lines: int = 12) -> str:
        """Last lines of the log."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        return "\n".join(f"  {line}" for line in text.splitlines()[-lines:])

    def terminate(self) -> None:
        """Terminate it, once: a second signal would find its handler gone."""
        if self.process.poll() is None and not self._terminated:
            self._terminated = True
            self.process.send_signal(signal.SIGTERM)

    def wait(self) -> None:
        """Wait for its end; kill it when that takes too long."""
        try:
            self.process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._out.close()


def stop_all(children: list[Child]) -> None:
    """End the services: sources first, so that their messages are still processed."""
    for child in children:
        child.terminate()
    for child in children:
        child.wait()
