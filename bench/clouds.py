"""What a crash between a call and its answer leaves in a cloud: machines that were bought twice, or not at all.

A process buys or returns a machine with a cloud's own library, and is killed (SIGKILL) by the server, before it has
received the call or after it has carried it out. A driver that knows nothing but the claim then settles the decision as
the actuator does. Judged at the server: exactly the machines that were decided. AWS is moto behind the strict proxy of
the tests, the others are their strict fakes; what is there is settled in milliseconds, not seconds.

``--quick`` is 30 crashes a cloud. The exit status is 1 when a decision was not settled to exactly its machines.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.actuators.carry_out import ended
from tests.clouds.aws import REGION, Account
from tests.clouds.azure import AzureFake
from tests.clouds.buying import buy, claimed, settle
from tests.clouds.gcp import GcpFake
from tests.clouds.moto_server import moto_server
from tests.clouds.strict import StrictAws

from flyball_actuators.platforms import Done, Handle
from flyball_actuators.platforms.pools import platform as pool_platform
from flyball_contracts.config import PoolConfig

CRASHES, QUICK = 1000, 30
POOL_LASTS = 20
"""Decisions about one pool, before a new one is made: the doubles remember all that ever was."""


class Ground(NamedTuple):
    """A cloud, what breaks its connections, the kinds of its pools, and the calls that buy and return of each."""

    cloud: Any
    faults: Any
    kinds: dict[str, tuple[str, str]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, and say by the exit status whether all held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crashes", type=int, help=f"crashes of each cloud ({CRASHES}; quick {QUICK})")
    parser.add_argument("--cloud", choices=("aws", "gcp", "azure"), help="only this one")
    parser.add_argument("--seed", type=int, default=1, help="of where the calls are cut")
    parser.add_argument("--quick", action="store_true", help="few crashes")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures there")
    options = parser.parse_args(arguments)
    crashes = options.crashes or (QUICK if options.quick else CRASHES)
    pool_platform.SETTLE_S = 0.02
    figures: dict[str, Any] = {}
    for name in [options.cloud] if options.cloud else ["aws", "gcp", "azure"]:
        with _ground(name) as ground:
            for kind in ground.kinds:
                figures[f"{name} {kind}"] = row = _crashed(ground, kind, -(-crashes // len(ground.kinds)), options.seed)
                print(
                    f"{name:6}{kind:20}{row['crashes']:6} crashes ({row['before']} before, {row['after']} after the "
                    f"call){row['exact']:6} settled exactly{row['more']:4} more{row['fewer']:4} fewer"
                    f"{row['unsettled']:4} not settled{row['wall_s']:8.1f} s"
                )
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1))
    return 0 if all(row["exact"] == row["crashes"] for row in figures.values()) else 1


@contextmanager
def _ground(name: str) -> Generator[Ground]:
    with ExitStack() as stack:
        if name == "aws":
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="flyball-clouds-"))
            proxy = StrictAws(url := stack.enter_context(moto_server(Path(folder))))
            stack.callback(proxy.close)
            account = Account(url, proxy)
            import boto3  # type: ignore[import-untyped]  # pyright: ignore

            boto3.Session = lambda region_name=REGION: account.session  # each new one would read megabytes of models
            yield Ground(account, proxy, {
                "fleet": ("ec2:CreateFleet", "ec2:CreateTags"),
                "auto_scaling_group": ("autoscaling:SetDesiredCapacity", "ec2:CreateTags"),
                "node_group": ("eks:UpdateNodegroupConfig", "eks:UpdateNodegroupConfig"),
            })  # fmt: skip
            return
        fake = GcpFake() if name == "gcp" else AzureFake()
        stack.callback(fake.close)
        yield Ground(fake, fake, {"scale_set": ("PATCH set", "PATCH set")} if name == "azure" else {
            "instance_group": ("POST resize", "POST deleteInstances"),
            "resize_request": ("POST resizeRequests", "POST deleteInstances"),
        })  # fmt: skip


def _pool(ground: Ground, kind: str) -> PoolConfig:
    cloud = ground.cloud
    if isinstance(cloud, Account):
        return cloud.fleet() if kind == "fleet" else cloud.group(0) if kind != "node_group" else cloud.node_group(0)
    return cloud.pool(kind) if isinstance(cloud, GcpFake) else cloud.pool()


def _crashed(ground: Ground, kind: str, crashes: int, seed: int) -> dict[str, Any]:
    random_ = random.Random(f"{seed} {kind}")
    row: dict[str, Any] = dict.fromkeys(("crashes", "before", "after", "exact", "more", "fewer", "unsettled"), 0)
    began_s, pool, size = time.monotonic(), _pool(ground, kind), 0
    for number in range(crashes):
        if number % POOL_LASTS == 0:
            pool, size = _pool(ground, kind), 0
        wanted = 1 - size
        cut = random_.choice(("before", "after"))
        row["crashes"] += 1
        row[cut] += 1
        decision = buy(pool, size, wanted, f"{kind.replace('_', '-')}-{number}")
        before = claimed(ground.cloud.platform(pool), decision)
        _killed(ground, pool, decision, before, ground.kinds[kind][wanted < size], cut)
        again = ground.cloud.platform(pool)
        handle = settle(again, decision, before)
        settled = isinstance(handle, Handle) and isinstance(ended(again, handle), Done)
        size = ground.cloud.size(pool)
        row["unsettled"] += not settled
        row["more" if size > wanted else "fewer" if size < wanted else "exact"] += 1
        if size != wanted:
            pool, size = _pool(ground, kind), 0
    return {**row, "wall_s": round(time.monotonic() - began_s, 1)}


def _killed(ground: Ground, pool: PoolConfig, decision: Any, before: Any, call: str, cut: str) -> None:
    """Submit in a process of its own, which the server kills in the middle of the call."""
    platform = ground.cloud.platform(pool)
    child = os.fork()
    if child == 0:
        try:
            platform.submit(decision, before, dry_run=False)
        finally:
            os._exit(3)  # it was not killed
    ground.faults.on_cut = lambda: os.kill(child, signal.SIGKILL)
    ground.faults.cut[call] = cut
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        raise SystemExit(f"the process that submits {decision.id} ended by itself: {status}")
    ground.faults.on_cut = lambda: None


if __name__ == "__main__":
    sys.exit(main())
