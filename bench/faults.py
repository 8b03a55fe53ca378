"""What is left of the loop when its parts are killed and stopped: decisions, effects, last words, frames.

A real Kafka, a simulated fleet that obeys, two workers, and two live actuators with two ledgers, each a process. A
seeded schedule kills them (SIGKILL) or lets them stand still (SIGSTOP), some for longer than the session of a consumer
group, the broker too; a supervisor starts again what was killed. What lies on the topics at the end, and the platform's
own audit, is compared with a replay of the recorded topics and with a run without faults.

``--quick`` is 60 faults at one speed. The exit status is 1 when an oracle is broken.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.brokers.kafka import missing
from tests.faults.scenario import fleet, settings
from tests.faults.schedule import Fault, schedule
from tests.faults.trial import as_json, judge, run, shown

FAULTS, QUICK_FAULTS = 300, 60
SPACING_S = 3.6
"""Mean seconds of the wall clock between two faults."""
FAST, REFERENCE = 4.0, 6.0
BACKLOG_S, BACKLOG_SPEED = 600.0, 10.0
AFTER_S = 60.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, and say by the exit status whether all held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, help=f"faults in all ({FAULTS}; with --quick {QUICK_FAULTS})")
    parser.add_argument("--seed", type=int, default=1, help="seed of the schedule and of the fleet")
    parser.add_argument("--speed", type=float, help=f"only at this speed, event seconds per second (1 and {FAST:g})")
    parser.add_argument("--quick", action="store_true", help="few faults, one speed, no backlog")
    parser.add_argument("--part", choices=("faults", "backlog"), help="only this part")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures there")
    parser.add_argument("--keep", type=Path, metavar="PATH", help="keep logs and recorded topics in this folder")
    options = parser.parse_args(arguments)
    if (reason := missing()) is not None:
        parser.error(reason)
    with tempfile.TemporaryDirectory(prefix="flyball-faults-") as name:
        figures = _all(options, options.keep or Path(name))
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1))
    broken = [f"{title}: {oracle}" for title, one in figures.items() for oracle in one["failed"]]
    print(f"broken oracles: {len(broken)}" + "".join(f"\n  {oracle}" for oracle in broken))
    return 1 if broken else 0


def _all(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    count = options.faults or (QUICK_FAULTS if options.quick else FAULTS)
    speeds = [options.speed] if options.speed else [FAST] if options.quick else [1.0, FAST]
    if options.part == "backlog":
        speeds = []
    figures: dict[str, Any] = {}
    for speed in speeds:
        span_s = SPACING_S * count / len(speeds)
        faults = schedule(options.seed, count // len(speeds), span_s)
        title = f"{len(faults)} faults at {speed:g} x real time"
        figures[title] = _one(folder / f"speed-{speed:g}", title, options.seed, speed, span_s, faults)
    if options.part != "faults" and (options.part == "backlog" or not options.quick):
        away = [Fault(20.0, f"worker-{i}", "kill", BACKLOG_S / BACKLOG_SPEED) for i in (1, 2)]
        span_s = 20.0 + BACKLOG_S / BACKLOG_SPEED + AFTER_S
        title = f"no worker for {BACKLOG_S:.0f} s of event time"
        figures[title] = _one(folder / "backlog", title, options.seed, BACKLOG_SPEED, span_s, away)
    return figures


def _one(folder: Path, title: str, seed: int, speed: float, span_s: float, faults: Sequence[Fault]) -> dict[str, Any]:
    busy_s = span_s * speed
    described = fleet(busy_s, seed)
    calm = run(
        folder / "undisturbed", None, (settings(max(speed, REFERENCE)), described, max(speed, REFERENCE)), busy_s
    )
    print(shown(calm, judge(calm, None), f"{title}: the run without faults"), flush=True)
    hit = run(folder / "disturbed", None, (settings(speed), described, speed), busy_s, faults, calm.end)
    findings = judge(hit, calm.end)
    print(shown(hit, findings, title), flush=True)
    return as_json(hit, findings)


if __name__ == "__main__":
    sys.exit(main())
