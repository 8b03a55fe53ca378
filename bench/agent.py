"""What the agent costs and what it can take, measured beside its peers in the same run.

    python bench/agent.py [--quick] [--json PATH] [PART ...]

Parts, all of them by default:

``spool``: the disk spool appends and replays telemetry frames of 8 GPUs (1.8 kB), beside SQLite in WAL mode. Both sides
promise the same: no record is lost by a kill once it is appended, each append on its own; replay takes 500 records at a
time and forgets them. SQLite (``synchronous=NORMAL``) syncs at its checkpoints, the spool each half second. Rounds
alternate; medians are shown with the least and the most. ``--folder`` chooses the disk.

``kills``: 1,000 times a process that writes to the spool is killed at a random moment, and mostly a file is damaged
too (a byte flipped, some put in, a piece cut off); half of them with a budget that is full. After each, what comes out
must be what went in, in order, and what does not must be counted. The run fails at the first record that is not.

``gpus``: reading 8 and 72 GPUs, beside the same calls through nvidia-ml-py; and the whole agent at one tick a second.
``soak``: whether memory stays flat, 1800 ticks of 8 GPUs in 90 s instead of 30 min. Both run against a stand-in for
NVML that answers at once: they show what the agent costs, not the driver. Every tick reads the full set, the details
too (by default they come each 10 s), with 10 new samples in the rings of power and utilisation, and sends it to an
embedded broker in another process. dcgm-exporter's memory, for comparison: a median of 467 to 484 MiB on nodes of 1 to
8 GPUs (as published, pytorch/ci-infra issue 1011; not measured here).

``host``: the agent without GPUs, sending to Kafka, beside Debian's prometheus-node-exporter, scraped as often, with its
default collectors and with only those that read what the agent reads. Left out where it is not installed.

Time is CPU time of the whole process, all threads included.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for `bench` and `tests`

from bench.common.report import machine
from bench.node import gpus as _gpus, host as _host, kills as _kills, spool as _spool

GOALS = {8: (0.005, 45.0), 72: (0.02, None)}  # share of a core, MiB
GOAL_READY_S = 1.0
QUICK_TICKS, TICKS, MEMORY_FRAMES = 7, 60, 30
SOAK_TICKS, QUICK_SOAK_TICKS, SOAK_PERIOD_S = 1_800, 300, 0.05


def gpus(*, quick: bool) -> dict[str, list[dict[str, float]]]:
    """Cost of reading 8 and 72 GPUs: of one read beside nvidia-ml-py's, and of the agent at one tick a second."""
    rounds = _spool.QUICK_ROUNDS if quick else _spool.ROUNDS
    ticks = QUICK_TICKS if quick else TICKS
    reads = [_gpus.reads(count, rounds=rounds, passes=5) for count in GOALS]
    agents = [_gpus.agent(count, ticks=ticks, period_s=1.0) for count in GOALS]
    memories = [_gpus.memory(count, frames=MEMORY_FRAMES) for count in GOALS]
    return {
        "reads": [one._asdict() for one in reads],
        "agent": [one._asdict() for one in agents],
        "memory": [one._asdict() for one in memories],
    }


def soak(*, quick: bool) -> dict[str, Any]:
    """Memory of the agent over many ticks, which come twenty times as fast as they would."""
    one = _gpus.agent(8, ticks=QUICK_SOAK_TICKS if quick else SOAK_TICKS, period_s=SOAK_PERIOD_S)
    print(
        f"soak, {one.gpus} GPUs, {one.ticks} ticks of {one.period_s:g} s: RSS {one.rss_first_mib:.1f}, "
        f"half-way {one.rss_half_mib:.1f}, then {one.rss_mib:.1f} MiB (goal {GOALS[8][1]:g} MiB, flat)"
    )
    return {"agent": [one._asdict()]}


def show_gpus(results: dict[str, list[dict[str, float]]]) -> None:
    """Tables for people."""
    for one in results["reads"]:
        ratio = one["plain_ms"] / one["ours_ms"]
        print(
            f"one read of {one['gpus']:2} GPUs: {one['ours_ms']:7.2f} ms, nvidia-ml-py {one['plain_ms']:7.2f} ms, "
            f"{ratio:.1f} times as much (medians, CPU)"
        )
    for one in results["agent"]:
        share, _ = GOALS[int(one["gpus"])]
        print(
            f"agent, {one['gpus']:2} GPUs, {one['ticks']} ticks of {one['period_s']:g} s: {100 * one['share']:.2f} % "
            f"of a core at 1 Hz (goal {100 * share:g} %), {100 * one['by_kernel']:.2f} % by the kernel over wall time"
        )
        print(
            f"  ready, with the first record queued, after {one['ready_s']:.2f} s, {one['ready_cpu_s']:.2f} s of it "
            f"CPU (goal {GOAL_READY_S:g} s)"
        )
    for one in results["memory"]:
        goal = GOALS[int(one["gpus"])][1]
        print(
            f"flyball agent, {one['gpus']:2} GPUs: RSS {one['rss_mib']:.1f} MiB"
            + (f" (goal {goal:g} MiB)" if goal else "")
            + f", {one['stand_in_mib']:.1f} of them the stand-in's state; PSS {one['pss_mib']:.1f}, "
            f"private {one['private_mib']:.1f} MiB, {one['threads']} threads"
        )
    print("dcgm-exporter, 1 to 8 GPUs: RSS 467 to 484 MiB (medians as published, ci-infra issue 1011; not measured)")


def spool(*, quick: bool, folder: Path) -> dict[str, Any]:
    """Append and replay rates of the spool and of SQLite."""
    rounds, records = (_spool.QUICK_ROUNDS, _spool.QUICK_RECORDS) if quick else (_spool.ROUNDS, _spool.RECORDS)
    results = _spool.spool(folder, rounds=rounds, records=records)
    _spool.show(results)
    rates = {name: {what: one._asdict() for what, one in rates.items()} for name, rates in results.items()}
    return {"records": records, "rounds": rounds, "frame_bytes": _spool.FRAME_BYTES, "records_per_s": rates}


def kills(*, quick: bool, folder: Path) -> dict[str, Any]:
    """What the spool gave up over many kills, and whether it counted all of it."""
    survived = _kills.survive(folder, kills=_kills.QUICK_KILLS if quick else _kills.KILLS)
    _kills.show(survived)
    return survived._asdict()


def shown(costs: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Print the tables of GPU costs and pass them on."""
    show_gpus(costs)
    return {**costs, "units": {"share": "of one core", "ready_s": "s", "rss_mib": "MiB", "ours_ms": "ms CPU"}}


def main() -> None:
    """Run some parts and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="spool, kills, gpus, host, soak (default: all)")
    parser.add_argument("--quick", action="store_true", help="under a minute: shorter, and without the soak")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write all figures there")
    parser.add_argument("--folder", type=Path, default=None, help="a folder on the disk to be measured")
    arguments = parser.parse_args()
    folder, quick = arguments.folder or Path(tempfile.gettempdir()), arguments.quick
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "spool": lambda: spool(quick=quick, folder=folder),
        "kills": lambda: kills(quick=quick, folder=folder),
        "gpus": lambda: shown(gpus(quick=quick)),
        "host": lambda: _host.compare(seconds=_host.QUICK_S if quick else _host.SECONDS),
        "soak": lambda: soak(quick=quick),
    }
    chosen: list[str] = arguments.parts or [part for part in parts if not (quick and part == "soak")]
    if unknown := sorted(set(chosen) - set(parts)):
        parser.error(f"no part {', '.join(unknown)}; choose from {', '.join(parts)}")
    figures = {part: parts[part]() for part in chosen}
    if arguments.json is not None:
        about = {"benchmark": "agent", "machine": machine(), "parts": figures}
        arguments.json.write_text(json.dumps(about, indent=1) + "\n")
        print(f"Figures: {arguments.json}")


if __name__ == "__main__":
    main()
