"""A platform of one's own behind driver ``webhook``: it runs as many copies of a command as Flyball decides.

    EDGE_TOKEN=... python webhook_server.py --cell edge --workload chat --port 8443 --token-env EDGE_TOKEN -- ./serve.sh

It needs Python's own library and nothing else. Operations are remembered in ``--memory``, also over restarts; the
processes end with the server, and start again with it. Put it behind a proxy with TLS where Flyball runs on another
machine. `infra/webhook.yaml` is the contract;
`flyball webhook http://127.0.0.1:8443 --workload chat --token-env EDGE_TOKEN` tests the server against it.
"""

import argparse
import hmac
import json
import os
import signal
import socket
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote


class Refused(Exception):
    """A status and the Rejection that goes with it."""

    def __init__(self, status, code, detail):
        self.status, self.body = status, {"code": code, "detail": detail}


class Fleet:
    """The processes of one workload. Put your own platform here."""

    def __init__(self, command, replicas):
        self.command, self.wanted, self.running, self.going = command, replicas, [], set()

    def replicas(self):
        """Those that run."""
        self.running = [process for process in self.running if process.poll() is None]
        return len(self.running)

    def names(self):
        """Names by which a decision may choose who stops: their process ids."""
        return [str(process.pid) for process in self.running if process.poll() is None]

    def step(self):
        """End those that are named, whatever else has ended; then start and end others until as many stay as wanted."""
        self.going &= set(self.names())  # the system gives the number of a process that has ended to another
        self.replicas()
        staying = [process for process in self.running if str(process.pid) not in self.going]
        for process in [*(one for one in self.running if one not in staying), *staying[self.wanted :]]:
            process.terminate()
        for _ in range(self.wanted - len(staying)):
            self.running.append(subprocess.Popen(self.command))


class Platform:
    """Operations by the id of their decision, each carried out at most once."""

    def __init__(self, cell, workload, fleet, memory):
        self.cell, self.workload, self.fleet, self.memory = cell, workload, fleet, memory
        self.lock, self.operations, self.version = threading.Lock(), {}, 0
        if memory.exists():
            kept = json.loads(memory.read_text())
            self.operations, self.version, fleet.wanted = kept["operations"], kept["version"], kept["replicas"]

    def watch(self):
        """Carry on, and see what has ended."""
        while True:
            with self.lock:
                self.fleet.step()
                for operation in self.operations.values():
                    if operation["status"] == "running":
                        operation["observed"] = self.state(operation["expected"].get("nodes", ()))
                        if not self.fleet.going and self.fleet.replicas() == operation["expected"]["replicas"]:
                            operation |= {"status": "done", "ended_ns": time.time_ns()}
                            self.remember()
            time.sleep(0.2)

    def state(self, named=()):
        """What it shows of the workload: the node of each process, and none for those of ``named`` that have ended."""
        count, nodes = self.fleet.replicas(), dict.fromkeys(named, "")
        nodes |= dict.fromkeys(self.fleet.names(), socket.gethostname())
        return {"replicas": self.fleet.wanted, "ready": count, "nodes": nodes, "version": str(self.version)}

    def submit(self, submission):
        """Take a decision on, once, or say what it would lead to."""
        decision, dry_run = submission["decision"], submission.get("dry_run", False)
        if decision["id"] in self.operations:
            return 200, self.operations[decision["id"]]
        if decision["workload"] != self.workload:
            raise Refused(404, "unknown_target", f"this server runs {self.workload!r}; correct actuator.platforms")
        if decision["type"] not in ("Scale", "Preempt"):
            raise Refused(422, "unsupported", f"it starts and ends processes, and knows no {decision['type']}")
        if submission.get("version") not in ("", str(self.version)):
            raise Refused(409, "conflict", f"it has version {self.version}; decide again on what it is now")
        count, victims = decision["replicas"], decision.get("victims", [])
        if unknown := set(victims) - set(self.fleet.names()):
            raise Refused(422, "invalid", f"no process {', '.join(sorted(unknown))} runs; name others or none")
        operation = {
            "id": decision["id"],
            "workload": self.workload,
            "status": "running",
            "detail": f"{self.fleet.wanted} to {count} processes",
            "expected": {"replicas": count, "ready": count, "nodes": dict.fromkeys(victims, "")},
            "observed": self.state(),
        }
        if dry_run:
            return 200, operation
        for older in self.operations.values():
            if older["status"] == "running":
                older |= {"status": "superseded", "ended_ns": time.time_ns()}
        self.operations[decision["id"]] = operation
        self.version, self.fleet.wanted, self.fleet.going = self.version + 1, count, set(victims)
        self.remember()  # before anything is done, so that a restart does it once
        return 202, operation

    def remember(self):
        """Write what a restart must know."""
        kept = {"operations": self.operations, "version": self.version, "replicas": self.fleet.wanted}
        fresh = self.memory.with_suffix(".new")
        fresh.write_text(json.dumps(kept))
        fresh.replace(self.memory)

    def answer(self, method, path, body):
        """Status and body of an answer."""
        match (method, *path):
            case ("GET", "v1", "cell"):
                return 200, {"cell": self.cell}
            case ("GET", "v1", "workloads", self.workload):
                return 200, self.state()
            case ("GET", "v1", "operations", name) if name in self.operations:
                return 200, self.operations[name]
            case ("POST", "v1", "operations"):
                return self.submit(json.loads(body))
        raise Refused(404, "unknown_target", f"{method} /{'/'.join(path)} is nothing here")


def handler(platform, token):
    """What answers a request that shows the token."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            shown = self.headers.get("Authorization", "").removeprefix("Bearer ")
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = [unquote(part) for part in self.path.strip("/").split("/")]
            if not hmac.compare_digest(shown.encode(), token.encode()):
                return self.send(401, {"code": "invalid", "detail": "show the token"})
            try:
                with platform.lock:
                    self.send(*platform.answer(self.command, path, body))
            except Refused as refused:
                self.send(refused.status, refused.body)

        do_POST = do_GET

        def send(self, status, answer):
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return Handler


def main():
    """Serve until a signal to stop."""
    parser = argparse.ArgumentParser()
    for name in ("--cell", "--workload", "--token-env"):
        parser.add_argument(name, required=True)
    parser.add_argument("--memory", default="operations.json")
    parser.add_argument("--port", type=int, default=8443)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    platform = Platform(given.cell, given.workload, Fleet(given.command, given.replicas), Path(given.memory))
    threading.Thread(target=platform.watch, daemon=True).start()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ThreadingHTTPServer(("127.0.0.1", given.port), handler(platform, os.environ[given.token_env])) as server:
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            platform.lock.acquire()  # nothing starts any more
            for process in platform.fleet.running:
                process.terminate()


if __name__ == "__main__":
    main()
