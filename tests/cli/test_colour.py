"""Colour is for terminals."""

import os
import pty
import subprocess

from tests.cli.shell import command, environment, flyball

ESCAPE = "\x1b["
PLAIN = {key: value for key, value in environment().items() if key not in ("NO_COLOR", "FORCE_COLOR")}


def on_a_terminal(*arguments: str) -> str:
    ours, theirs = pty.openpty()
    with subprocess.Popen(command(*arguments), stdout=theirs, stdin=theirs, env={**PLAIN, "TERM": "xterm"}) as process:
        os.close(theirs)
        output = b""
        try:
            while more := os.read(ours, 4096):
                output += more
        except OSError:  # how Linux says that nobody holds the other end any more
            pass
        finally:
            os.close(ours)
        assert process.wait(30.0) == 0
    return output.decode()


def test_only_a_terminal_gets_colour() -> None:
    assert ESCAPE in on_a_terminal("topics")
    assert ESCAPE not in flyball("topics").stdout
