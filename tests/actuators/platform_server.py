"""A platform behind HTTP that holds strictly to ``flyball_contracts.simulated``: what tests judge by."""

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import msgspec
from tests.actuators.samples import CELL, NOW, S

from flyball_contracts.records import AnyDecision, Check, Migrate, Preempt, Scale, SubjectState
from flyball_contracts.simulated import CellState, Operation, Rejection, Submission

replace = msgspec.structs.replace


class PlatformServer:
    """Workloads that obey at once, or when told to.

    ``held`` makes operations run until :meth:`finish`; else each takes ``takes_s`` of real time. While ``answering``
    is not set no request is answered, and ``deaf`` submissions take effect without an answer. ``log`` has the ids of
    all submissions that were not dry, and ``callers`` the token of who made each. Who is in ``stalled`` waits for
    answers, until :meth:`let_go`. While it is ``broken``, HTTP 503 is all that it says.
    """

    def __init__(self, cell: str = CELL) -> None:
        self.cell = cell
        self.held = self.broken = False
        self.deaf = 0
        self.takes_s = 0.0
        self.now_ns = NOW + 5 * S
        self.log: list[str] = []
        self.callers: list[str] = []
        self.stalled: set[str] = set()
        self._stalled = threading.Condition()
        self.calls: list[str] = []
        self.workloads: dict[str, SubjectState] = {}
        self.operations: dict[str, Operation] = {}
        self._ends_s: dict[str, float] = {}
        self._lock = threading.RLock()
        self.answering = threading.Event()
        self.answering.set()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                server.serve(self, "GET")

            def do_POST(self) -> None:
                server.serve(self, "POST")

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def has(self, workload: str, replicas: int, **more: Any) -> None:
        """Let a workload run."""
        nodes = {f"{workload}-{i}": "n1" for i in range(replicas)}
        self.workloads[workload] = SubjectState(replicas=replicas, ready=replicas, nodes=nodes, version="1", **more)

    def finish(self, operation: str, replicas: int | None = None) -> None:
        """End an operation that is held, with its effect, or with another number of replicas."""
        with self._lock:
            self._end(operation, replicas)

    @property
    def effects(self) -> list[str]:
        """Ids of the operations that changed something, once for each change."""
        return [op.id for op in self.operations.values() for _ in range(op.effects)]

    def let_go(self) -> None:
        """Answer everybody."""
        with self._stalled:
            self.stalled.clear()
            self._stalled.notify_all()

    def close(self) -> None:
        self.answering.set()
        self.let_go()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def serve(self, request: BaseHTTPRequestHandler, method: str) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        self.calls.append(f"{method} {request.path}")
        self.answering.wait(20.0)
        caller = (request.headers.get("Authorization") or "").removeprefix("Bearer ")
        with self._stalled:
            self._stalled.wait_for(lambda: caller not in self.stalled, 40.0)
        with self._lock:
            self._let_end()
            status, answer = (503, "") if self.broken else self._answer(method, unquote(request.path), body)
            self.callers += [caller] * (len(self.log) - len(self.callers))
            drop = method == "POST" and self.deaf > 0
            self.deaf -= drop
        if drop:
            request.close_connection = True
            return
        raw = msgspec.json.encode(answer)
        try:
            request.send_response(status)
            request.send_header("Content-Length", str(len(raw)))
            request.end_headers()
            request.wfile.write(raw)
        except OSError:
            request.close_connection = True

    def _answer(self, method: str, path: str, body: bytes) -> tuple[int, object]:
        if (method, path) == ("POST", "/v1/operations"):
            return self._submit(msgspec.json.decode(body, type=Submission))
        _, _, kind, *name = path.split("/", 3)
        if kind == "cell":
            return 200, CellState(
                cell=self.cell, now_ns=self.now_ns, speed=1.0, nodes=1, workloads=tuple(self.workloads)
            )
        if kind == "operations" and not name:
            return 200, list(self.operations.values())
        table: dict[str, Any] = {"workloads": self.workloads, "operations": self.operations}.get(kind, {})  # type: ignore[assignment]
        found = table.get(name[0]) if name else None
        if found is None:
            return 404, Rejection(code="unknown_target", detail=f"no {path}; ask for another")
        return 200, found

    def _submit(self, submission: Submission) -> tuple[int, object]:
        decision = submission.decision
        before = self.workloads.get(decision.workload)
        known = self.operations.get(decision.id)
        if not submission.dry_run:
            self.log.append(decision.id)
        if known is not None and not submission.dry_run:
            self.operations[decision.id] = replace(known, submissions=known.submissions + 1)
            return 200, self.operations[decision.id]
        if before is None:
            return 404, Rejection(code="unknown_target", detail=f"no workload {decision.workload}; submit it first")
        if submission.version and submission.version != before.version:
            return 409, Rejection(
                code="conflict", detail=f"version {before.version}, not {submission.version}; look again"
            )
        if isinstance(decision, Migrate) and decision.replica not in before.nodes:
            return 422, Rejection(code="invalid", detail=f"no replica {decision.replica}; name another")
        operation = Operation(
            id=decision.id, workload=decision.workload, status="running", detail="on its way",
            submitted_ns=self.now_ns, before=before, expected=_after(decision, before), observed=before,
        )  # fmt: skip
        if submission.dry_run:
            return 200, operation
        for other in [o for o in self.operations.values() if o.status == "running"]:
            if other.workload == decision.workload:
                self.operations[other.id] = replace(other, status="superseded", ended_ns=self.now_ns, detail="newer")
        self.operations[decision.id] = operation
        self._ends_s[decision.id] = time.monotonic() + self.takes_s
        self._let_end()
        return 202, operation

    def _let_end(self) -> None:
        for id_, ends_s in list(self._ends_s.items()):
            if not self.held and time.monotonic() >= ends_s:
                del self._ends_s[id_]
                if self.operations[id_].status == "running":
                    self._end(id_, None)

    def _end(self, id_: str, replicas: int | None) -> None:
        operation = self.operations[id_]
        state = operation.expected
        if replicas is not None:
            state = replace(state, replicas=replicas, ready=replicas)
        state = replace(state, version=str(int(operation.before.version) + 1))
        self.workloads[operation.workload] = state
        self.operations[id_] = replace(
            operation, status="done", observed=state, ended_ns=self.now_ns, effects=operation.effects + 1, detail="ok"
        )


def _after(decision: AnyDecision, before: SubjectState) -> SubjectState:
    if isinstance(decision, Migrate):
        return replace(before, nodes={**before.nodes, decision.replica: decision.to_node or "n2"})
    assert not isinstance(decision, Check)
    nodes = {f"{decision.workload}-{i}": "n1" for i in range(decision.replicas)}
    if isinstance(decision, Preempt):
        return replace(before, replicas=decision.replicas, ready=decision.replicas, nodes=nodes)
    assert isinstance(decision, Scale)
    return replace(
        before, replicas=decision.replicas, ready=decision.replicas, nodes=nodes,
        resources=decision.resources or before.resources, power_limit_w=decision.power_limit_w or before.power_limit_w,
    )  # fmt: skip


@contextmanager
def platform_server(**workloads: int) -> Generator[PlatformServer]:
    """A server with these workloads, and so many replicas of each."""
    server = PlatformServer()
    for name, replicas in workloads.items():
        server.has(name, replicas)
    try:
        yield server
    finally:
        server.close()
