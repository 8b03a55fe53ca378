"""What can happen to the actuators of a site, one move at a time, by chance."""

import random
from collections import Counter
from collections.abc import Sequence

from tests.actuators.in_memory.site import Process, Site, started
from tests.actuators.samples import NOW, S, migrate, preempt, scale

from flyball_contracts.records import Stop

DAMAGE = ("none", "none", "lost", "bit", "cut", "old")
JUMPS = (-172_800, -60, 0, 0, 30, 3_600)
FAULTS = ("before", "after", "after", "observe", "find", "poll", "conflict", "slow", "slow")
_MOVES = (
    *("send",) * 10, "again", "again", *("step",) * 6, *("turn",) * 8, "crash", "crash", "restart", "wait", "jump",
    "hold", "let go", "let go", "fail", "fail", "another client", "stop", "slow",
)  # fmt: skip


class Chaos:
    """Moves on a site; the last of the ``workloads`` must not be touched."""

    def __init__(self, site: Site, chance: random.Random, workloads: Sequence[str]) -> None:
        self.site, self.chance, self.workloads = site, chance, workloads
        self.made = 0
        self.moves = Counter[str]()

    def send(self, kind: str) -> None:
        """Decide something on what runs; what is ``late`` was decided long ago."""
        site, chance = self.site, self.chance
        name = chance.choice(self.workloads)
        cell = site.cells[name]
        before = site.account.state[name].replicas or 0
        self.made += 1
        id_, time_ns = f"d{self.made}", site.now_ns - (300 * S if kind == "late" else 0)
        if kind == "preempt" and before:
            after = chance.randrange(before)
            site.send(preempt(id_, workload=name, before=before, after=after, time_ns=time_ns, cell=cell))
        elif kind == "migrate":
            site.send(
                migrate(
                    id_, workload=name, replica=f"{name}-0", from_node=f"n-{cell}", time_ns=time_ns, cell=cell,
                    from_device=chance.choice(["", "GPU-1"]),
                )
            )  # fmt: skip
        else:
            after = chance.choice([n for n in range(7) if n != before])
            site.send(scale(id_, workload=name, before=before, after=after, time_ns=time_ns, cell=cell))

    def send_everywhere(self) -> None:
        """At the same moment take half of each workload away."""
        for name in self.workloads:
            before = self.site.account.state[name].replicas or 0
            if before:
                self.made += 1
                self.site.send(
                    scale(
                        f"d{self.made}", workload=name, before=before, after=before // 2, time_ns=self.site.now_ns,
                        cell=self.site.cells[name],
                    )
                )  # fmt: skip

    def send_again(self) -> None:
        """Deliver one of the latest twice, also after newer ones."""
        which = self.made - self.chance.randrange(min(self.made, 40))
        self.site.broker.publish(self.site.sent[f"d{which}"])

    def turn(self, times: int) -> None:
        """Let all processes go on."""
        for _ in range(times):
            for process in self.site.processes:
                process.step()
            self.site.time.now_s += 0.3

    def restart(self, process: Process, damage: str, at: int) -> None:
        """Kill a process, do something to its ledger, and start it."""
        if process.alive:
            process.kill()
        path = process.ledger_path
        raw = path.read_bytes() if path.exists() else b""
        if damage == "lost":
            path.unlink(missing_ok=True)
        elif raw and damage == "bit":
            changed = bytearray(raw)
            changed[at % len(raw)] ^= 1 << at % 8
            path.write_bytes(changed)
        elif raw and damage == "cut":
            path.write_bytes(raw[: at % len(raw)])
        elif raw and damage == "old":  # a copy from some steps ago
            lines = raw.splitlines(keepends=True)
            path.write_bytes(b"".join(lines[: 1 + at % len(lines)]))
        started(process)

    def another_client(self) -> None:
        """Another client scales a workload."""
        self.site.account.scale_by_another_client(self.chance.choice(self.workloads), self.chance.randrange(7))

    def stop(self, on: bool) -> None:
        """A person stops everything, or lets it go on."""
        self.site.orders.stops = (Stop(cell="*", time_ns=NOW, by="ann"),) if on else ()

    def move(self) -> None:
        """Do one of these."""
        site, chance = self.site, self.chance
        process, what = chance.choice(site.processes), chance.choice(_MOVES)
        self.moves[what] += 1
        if what == "send":
            self.send(chance.choice(["scale"] * 5 + ["preempt", "preempt", "migrate", "late"]))
        elif what == "again":
            self.send_again()
        elif what == "step":
            process.step()
        elif what == "turn":
            self.turn(chance.randint(1, 3))
        elif what == "crash":
            process.left = chance.randrange(15)
        elif what == "restart":
            for one in site.processes:
                if not one.alive or (one is process and chance.random() < 0.3):
                    self.restart(one, chance.choice(DAMAGE), chance.randrange(1 << 30))
        elif what == "wait":
            site.time.now_s += chance.choice([0.5, 2.0, 5.0, 9.0])
        elif what == "jump":
            process.jump_ns = chance.choice(JUMPS) * S
        elif what == "hold":
            process.held = True
        elif what == "let go":
            process.held = False
        elif what == "fail":
            site.account.faults[chance.choice(FAULTS)] += 1
        elif what == "another client":
            self.another_client()
        elif what == "slow":
            site.slowly = chance.choice([0.0, 0.5, 1.0])
        elif what == "stop":
            self.stop(chance.random() < 0.3)
