"""`make demo` as README.md shows it: with a page until Ctrl-C, and without one until its time is up.

Only what a machine of tests lacks is put in: a free port for the page, and less time.
"""

import re
import signal
import urllib.request
from pathlib import Path

import pytest
from tests.brokers.server import free_ports
from tests.conftest import ROOT
from tests.readme.blocks import lines, placed, run, started

pytestmark = pytest.mark.integration
PAGES = [lines("make demo     #")[0], lines('make demo ARGS="--speed 60"')[0]]
SECONDS = 75


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5.0) as answer:
            return b"Flyball" in answer.read()
    except OSError:
        return False


@pytest.mark.timeout(600)
@pytest.mark.parametrize("line", PAGES, ids=["real-time", "fast"])
def test_the_page_is_served_until_it_is_interrupted(line: str, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    line = line.partition(" #")[0].rstrip()
    given = re.sub(r'ARGS="([^"]*)"', rf'ARGS="\1 --port {port}"', line)
    given = given if "ARGS" in given else f'{given} ARGS="--port {port}"'
    with started(f"make -C {ROOT} {given.removeprefix('make ')}", tmp_path) as demo:
        demo.until(lambda: answers(f"http://127.0.0.1:{port}"), "the page is there")
        demo.until(lambda: "telemetry" in demo.output or str(port) in demo.output, "the demo says where")
        assert demo.interrupt() in (2, 130, -signal.SIGINT)  # as make reports that its recipe was interrupted
        assert "Traceback" not in demo.output


@pytest.mark.timeout(600)
def test_hours_pass_in_minutes_without_a_page(tmp_path: Path) -> None:
    line = placed(lines('make demo ARGS="--speed 60"')[1], {"--for 240": f"--for {SECONDS}"})
    done = run(f"make -C {ROOT} {line.removeprefix('make ')}", tmp_path, timeout_s=500)
    assert "the loop closed" in done.stdout
