"""The contenders of ``spine.py``, each in a process of its own, side by side on one broker."""

import multiprocessing
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Self, cast

from bench.common import children
from bench.common.broker import DEADLINE_S, Sender, Watch, send_paced, wait_for
from bench.common.children import Cost
from bench.common.load import Frames, Load, Size, gpu_ticks, partition_counts
from bench.common.report import Row, Sample
from tests.brokers.base import Broker

from flyball_contracts.codec import Message
from flyball_contracts.errors import TransportError
from flyball_contracts.metrics import GPU
from flyball_contracts.partitioner import partition_of
from flyball_contracts.topics import DECISIONS, DEMAND, INSIGHTS, TELEMETRY

METRICS = "bench.metrics.v1"
FRAMES = "bench.frames.v1"
BENCH_PARTITIONS = {METRICS: 60, FRAMES: 32}  # many, because the embedded broker keeps 5 MiB of each
SPAWN = multiprocessing.get_context("spawn")


class Child(AbstractContextManager["Child"]):
    """A measured process of ours at the other end of a pipe."""

    def __init__(self, name: str, run: Callable[..., None], *arguments: Any) -> None:
        self._name = name
        self._pipe, theirs = SPAWN.Pipe()
        self._process = SPAWN.Process(target=run, args=(theirs, *arguments), name=name, daemon=True)
        self._process.start()
        theirs.close()

    def request(self, command: Any) -> Any:
        """Send a command and wait for its answer."""
        self.send(command)
        return self.receive()

    def send(self, command: Any) -> None:
        """Send a command."""
        self._pipe.send(command)

    def receive(self) -> Any:
        """Wait for an answer; raises :class:`TransportError` when the process ended or is late."""
        try:
            if cast("Any", self._pipe).poll(DEADLINE_S):
                return self._pipe.recv()
        except EOFError:
            raise TransportError(f"{self._name} ended (exit status {self._process.exitcode})") from None
        raise TransportError(f"{self._name} did not answer within {DEADLINE_S:.0f} s")

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()


class WorkerProcess(AbstractContextManager["WorkerProcess"]):
    """The real command, ``flyball worker``, watched from outside."""

    def __init__(self, bootstrap: str, embedded: bool) -> None:
        self._log = tempfile.NamedTemporaryFile(mode="w+", prefix="flyball-bench-worker-", suffix=".log")  # noqa: SIM115
        command = [sys.executable, "-m", "flyball_cli", "worker", "--bootstrap", bootstrap]
        command += ["--embedded"] if embedded else []
        self._process = subprocess.Popen(command, stdout=self._log, stderr=subprocess.STDOUT)

    def alive(self) -> bool:
        """Return true; raises :class:`TransportError` with the end of its log when the process ended."""
        if self._process.poll() is not None:
            tail = Path(self._log.name).read_text(errors="replace")[-2000:]
            raise TransportError(f"the worker ended with status {self._process.returncode}:\n{tail}")
        return True

    def cpu_s(self) -> float:
        """CPU seconds of the process so far, all threads: what ``time.process_time()`` says inside."""
        self.alive()
        # The kernel's clock of another process (clock_getcpuclockid): exact where /proc counts in 10 ms.
        return time.clock_gettime((~self._process.pid << 3) | 2)

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(20.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


class Contest(AbstractContextManager["Contest"]):
    """All rows on one broker; :meth:`segment` does one repeat of each, one after the other."""

    def __init__(
        self,
        broker: Broker,
        size: Size,
        seed: int,
        *,
        embedded: bool,
        progress: Callable[[str], None],
        frames: Frames = "gpu",
    ) -> None:
        self.size, self.seed, self._progress, self.frames = size, seed, progress, frames
        self.worker_row = Row("worker", "flyball worker: broker to decisions")
        self.engine_row = Row("engine", "engine alone, fed from memory")
        self.plain_row = Row("plain_faust", "plain Faust, one message per metric")
        self.bare_row = Row("bare_loop", "bare consume(500), same messages, not decoded")
        self.decode_row = Row("bare_decode", "bare consume(500) + decode to one array")
        self.rows = [self.worker_row, self.engine_row, self.plain_row, self.bare_row, self.decode_row]
        self.published: dict[str, int] = {}
        counts = partition_counts(size)
        broker.create_topics(counts | BENCH_PARTITIONS)
        self._load, self._metrics = Load(size.copies, seed, frames), Load(1, seed)
        self.gpus, self.nodes = self._load.gpus, self._load.nodes
        self._first_tick = 0
        self._sender = Sender(broker.bootstrap)
        self._stack = ExitStack()
        try:
            self._begin(broker.bootstrap, embedded, counts[DEMAND.name])
        except BaseException:
            self._stack.close()
            raise

    def segment(self) -> None:
        """One repeat of every row."""
        self._progress("flyball worker")
        made = self._load.ticks(self.size.ticks)
        self.worker_row.samples.append(self._worker_segment(made))
        self._progress("engine alone")
        self.engine_row.samples.append(self._engine_segment())
        self._progress("plain Faust")
        self.plain_row.samples.append(self._plain_segment())
        self._progress("bare loop")
        self.bare_row.samples.append(self._bare_segment(decode=False))
        self.decode_row.samples.append(self._bare_segment(decode=True))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _begin(self, bootstrap: str, embedded: bool, demand_partitions: int) -> None:
        size = self.size
        self._progress("starting the processes and compiling the models")
        start, warm = self._load.start(), self._load.ticks(size.warm_ticks)
        self._sender.send(start)
        self._sender.flush()
        enter = self._stack.enter_context
        self._worker = enter(WorkerProcess(bootstrap, embedded))
        self._engine = enter(Child("engine", children.engine, size, self.seed, self.frames))
        metrics = (METRICS, BENCH_PARTITIONS[METRICS])
        self._plain = enter(Child("plain Faust", children.plain_faust, bootstrap, *metrics, embedded))
        frames = [m for m in warm[-1] if m.topic == TELEMETRY.name]
        self._fill(warm, frames)
        total = self._frames
        self._bare = enter(Child("bare loop", children.bare_loop, bootstrap, FRAMES, BENCH_PARTITIONS[FRAMES], total))
        sources = {f"node/{partition_of(m.key, size.partitions)}" for m in frames}
        self._watch = Watch(bootstrap, sources, demand_partitions)
        self._stack.callback(self._watch.close)
        self._worker_segment(warm)
        for child in (self._engine, self._plain, self._bare):
            child.receive()
        self._engine.request(size.warm_ticks)

    def _fill(self, warm: list[list[Message]], frames: list[Message]) -> None:
        """Put what the bare loop reads into a topic of its own: ticks of the fleet, as often as they fit."""
        ticks = [[m for m in messages if m.topic == TELEMETRY.name] for messages in warm]
        room = BENCH_PARTITIONS[FRAMES] * 2_500_000
        times = min(self.size.ticks, room // sum(len(m.value) for m in frames))
        chosen = [ticks[i % len(ticks)] for i in range(max(1, times))]
        for messages in chosen:
            for m in messages:
                self._sender.produce(FRAMES, m.key, m.value)
        self._sender.flush()
        self._frames, self._frame_rows = sum(map(len, chosen)), gpu_ticks(chosen)

    def _worker_segment(self, ticks: list[list[Message]]) -> Sample:
        """Send ticks, wait until every lane has closed the last and all offsets are committed; the worker's cost."""
        first, self._first_tick = self._first_tick, self._first_tick + len(ticks)
        start = self._load.start_tick
        last = start + self._first_tick - 1
        before = {topic.name: self._watch.count(topic.name) for topic in (INSIGHTS, DECISIONS)}
        cpu, wall = self._worker.cpu_s(), time.monotonic()
        send_paced(self._sender, self._watch, ticks, start + first, self.size.partitions, warm=not first)
        wait_for("closing the last tick", lambda: self._worker.alive() and self._watch.passed(last))
        took = time.monotonic() - wall
        wait_for("committing the last offsets", self._watch.committed)
        cpu = self._worker.cpu_s() - cpu
        # The first ticks have no whole grace behind them: what is claimed is claimed of the measured ones.
        problem = self._watch.problem(start + first, last) if first else ""
        if first:
            for topic, count in before.items():
                self.published[topic] = self.published.get(topic, 0) + self._watch.count(topic) - count
        return Sample(gpu_ticks(ticks), cpu, took, problem)

    def _engine_segment(self) -> Sample:
        cost, unused = cast("tuple[Cost, int]", self._engine.request(self.size.ticks))
        return Sample(cost.rows, cost.cpu_s, cost.wall_s, f"{unused} frames were not used" if unused else "")

    def _plain_segment(self) -> Sample:
        messages = list(self._metrics.metrics(self.size.plain_gpus, self.size.plain_ticks))
        expected = {key: str(float(value)) for key, value in messages}
        self._plain.request(len(messages))
        for key, value in messages:
            self._sender.produce(METRICS, key, value)
        self._sender.flush()
        cost, extra, newest = cast("tuple[Cost, int, dict[bytes, float]]", self._plain.receive())
        problem = f"{extra} messages came twice" if extra else ""
        if {key: str(value) for key, value in newest.items()} != expected:
            problem = "the agent's values are not those that were sent last"
        return Sample(cost.messages / len(GPU), cost.cpu_s, cost.wall_s, problem)

    def _bare_segment(self, decode: bool) -> Sample:
        cost = cast(Cost, self._bare.request((self.size.passes, decode)))
        rows, count = self._frame_rows * self.size.passes, self._frames * self.size.passes
        problem = f"{cost.messages} of {count} messages arrived" if cost.messages != count else ""
        if decode and cost.rows != rows:
            problem = f"{cost.rows} of {rows} GPU rows were decoded"
        return Sample(rows, cost.cpu_s, cost.wall_s, problem)
