"""Discovery: what pods are requested, how they are read, and what happens while the API server is away."""

import json
import math
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.collectors.workload.workload_pages import Work, sglang, vllm
from tests.collectors.workload.workload_server import certificate, page_server, until

from flyball_collectors.agent.setup import Setup
from flyball_collectors.base import KeyedReading
from flyball_collectors.parameters import AgentParameters, KubernetesParameters, WorkloadsParameters
from flyball_collectors.workload import WorkloadCollector
from flyball_collectors.workload.discovery.kubernetes import PodWatch, pods_of
from flyball_collectors.workload.discovery.targets import discovered
from flyball_collectors.workload.scraping.token import FetchError
from flyball_contracts.config import AttributionConfig, Config
from flyball_contracts.config.attribution import NamingRule
from flyball_contracts.declared.names import NAMES_PATH
from flyball_contracts.errors import ConfigError
from flyball_contracts.metrics import WORKLOAD

PODS = "/api/v1/pods"
NODE = "/api/v1/nodes/n1"
ACTIVE = WORKLOAD.column("flyball.workload.request.active")
READY = WORKLOAD.column("flyball.workload.ready")


def pod(
    name: str,
    reported: Mapping[str, str] | None = None,
    *,
    ip: str | None = "127.0.0.1",
    phase: str = "Running",
    ports: tuple[int, ...] = (8000,),
) -> dict[str, Any]:
    """A pod with the fields that an API server tells, empty ones left out."""
    container: dict[str, Any] = {
        "name": "server",
        "image": "registry.invalid/server:1",
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
        "terminationMessagePath": "/dev/termination-log",
        "imagePullPolicy": "IfNotPresent",
    }
    if ports:
        container["ports"] = [{"name": f"p{port}", "containerPort": port, "protocol": "TCP"} for port in ports]
    metadata: dict[str, Any] = {
        "name": name,
        "generateName": "server-",
        "namespace": "ml",
        "uid": f"00000000-0000-4000-8000-{abs(hash(name)) % 10**12:012d}",
        "resourceVersion": "412",
        "creationTimestamp": "2026-03-01T12:00:00Z",
        "labels": {"app": "server"},
    }
    if reported is not None:
        metadata["annotations"] = dict(reported)
    status: dict[str, Any] = {
        "phase": phase,
        "qosClass": "BestEffort",
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    if ip is not None:
        status |= {"podIP": ip, "podIPs": [{"ip": ip}], "hostIP": "10.0.0.1"}
    return {"metadata": metadata, "spec": {"nodeName": "n1", "containers": [container]}, "status": status}


def answer(*pods: dict[str, Any]) -> str:
    return json.dumps({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "413"}, "items": pods})


def names(*, complete: bool = True, **namespaces: list[str]) -> str:
    spec = {"names": namespaces, **({"complete": True} if complete else {})}
    return json.dumps({"kind": "WorkloadNames", "metadata": {"name": "flyball"}, "spec": spec})


def node(*, closed: bool = False) -> str:
    spec = {"unschedulable": True} if closed else {}
    return json.dumps({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n1"}, "spec": spec})


def reported(workload: str = "chat", **more: str) -> dict[str, str]:
    known = {"prometheus.io/scrape": "true", "flyball.dev/workload": workload, "flyball.dev/server": "vllm"}
    return known | {key.replace("__", "/").replace("_", "."): value for key, value in more.items()}


@pytest.mark.parametrize(
    ("one", "url"),
    [
        (pod("a", reported()), "http://127.0.0.1:8000/metrics"),
        (pod("a", reported() | {"prometheus.io/port": "9000", "prometheus.io/path": "m"}), "http://127.0.0.1:9000/m"),
        (pod("a", reported() | {"prometheus.io/scheme": "https"}, ip="fd00::1"), "https://[fd00::1]:8000/metrics"),
        (pod("a", reported(), phase="Pending", ip=None), ""),
        (pod("a", reported(), ports=()), ""),
        (pod("a", reported() | {"prometheus.io/scheme": "file"}), ""),
        (pod("a", reported() | {"prometheus.io/port": "80/x?"}), ""),
        (pod("a", reported() | {"prometheus.io/port": "80000"}), ""),
    ],
)
def test_where_a_pod_is_scraped(one: dict[str, Any], url: str) -> None:
    (found,) = pods_of(answer(one).encode())
    assert (found.workload, found.replica, found.url) == ("chat", "a", url)
    assert dict(found.labels) == {"namespace": "ml", "pod": "a", "uid": one["metadata"]["uid"]}
    assert (found.server, found.work) == ("vllm", "requests")


def test_who_takes_part() -> None:
    others = [
        pod("plain"),
        pod("scraped", {"prometheus.io/scrape": "true"}),
        pod("off", reported() | {"prometheus.io/scrape": "false"}),
        pod("done", reported(), phase="Succeeded"),
        pod("dead", reported(), phase="Failed"),
    ]
    assert pods_of(answer(*others).encode()) == ()
    for bad in (b"", b"[]", b'{"items": [{}]}', b"\xff"):
        with pytest.raises(FetchError, match=r"not a list of pods .*see KUBERNETES_SERVICE_HOST"):
            pods_of(bad)


def test_pods_are_requested_as_the_service_account(tmp_path: Path) -> None:
    context, ca_file = certificate(tmp_path)
    token = tmp_path / "token"
    token.write_text("abc")
    with page_server(tls=context) as server:
        server.respond(PODS, answer(pod("a", reported())))
        server.respond("/api/v1/nodes/n%2F1", node())
        host, _, port = server.url.removeprefix("https://").rpartition(":")
        settings = KubernetesParameters(period_s=0.05, token_file=str(token), ca_file=str(ca_file))
        environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        watch = PodWatch(settings, "n/1", 10.0, environ)
        until(lambda: [one.replica for one in watch.found] == ["a"])
        until(lambda: watch.problem == "")
        assert {request.headers["Authorization"] for request in server.requests} == {"Bearer abc"}
        assert [request.path for request in server.requests[:3]] == [
            f"{NAMES_PATH}?resourceVersion=0",
            "/api/v1/pods?fieldSelector=spec.nodeName%3Dn%2F1&resourceVersion=0",
            "/api/v1/nodes/n%2F1?resourceVersion=0",
        ]
        server.respond(PODS, '{"kind":"Status","status":"Failure","reason":"Forbidden","code":403}', status=403)
        until(lambda: watch.errors > 1)
        assert [one.replica for one in watch.found] == ["a"]
        server.respond(PODS, answer())
        until(lambda: watch.found == ())
        watch.close()


def test_a_declared_name_belongs_to_pods_of_its_namespace(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "token").write_text("abc")
    mine, other = pod("chat-a", reported()), pod("chat-b", reported())
    other["metadata"]["namespace"] = "web"
    listen = f"unix://{tmp_path}/t.sock"
    with page_server() as api, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        api.respond(PODS, answer(mine, other))
        api.respond(NODE, node())
        api.respond(NAMES_PATH, names(chat=["ml"], tune=["ml", "lab"]))
        settings = KubernetesParameters(url=api.url, period_s=0.05, token_file=str(tmp_path / "token"))
        workloads = WorkloadsParameters(discover=("kubernetes",), kubernetes=settings, listen=listen)
        rules = AttributionConfig(rules=(NamingRule(match={"runtime": "*"}, workload="tun?"),))
        collector = WorkloadCollector(workloads, "n1", root=tmp_path, attribution=rules, environ={})

        def counted() -> list[str]:
            sender.sendto(b"training,workload=tune,replica=t step=1", f"{tmp_path}/t.sock")
            collector.read(0, 1)
            return sorted(one.replica for one in collector.parts().allocations)

        def shows(problem: str) -> bool:
            return problem in (collector.problems()["kubernetes"] or "")

        try:
            collector.read(0, 1)
            until(lambda: counted() == ["chat-a"])
            owners = "workload 'chat' belongs to pods of namespace 'ml', as the controller says; choose another name"
            assert f"pod web/chat-b: {owners}" in caplog.text
            assert "belongs to pods of namespace 'ml' or 'lab'" in caplog.text
            assert collector.problems()["kubernetes"] == ""
            api.respond(NAMES_PATH, names(chat=["web"]))
            until(lambda: counted() == ["chat-b", "t"])
            api.respond(NAMES_PATH, "{}", status=403)
            until(lambda: shows("without get on workloadnames no name is kept for the namespace that it belongs to"))
            api.respond(NAMES_PATH, "[]")
            until(lambda: shows("no names of workloads"))
            assert counted() == ["chat-b", "t"], "what was known stays"
            api.respond(NAMES_PATH, "{}", status=404)
            until(lambda: counted() == ["t"])
            rule = '{match: {runtime: kubernetes, namespace: "web"}, workload: "chat"}'
            assert f"pod web/chat-b: no rule lets it report for workload 'chat'; add {rule} to agent." in caplog.text
            api.respond(NAMES_PATH, names(tune=["ml"]))
            until(lambda: counted() == ["chat-a", "chat-b"])
            api.respond(NAMES_PATH, names(complete=False, tune=["ml"]))
            until(lambda: counted() == [])
        finally:
            collector.close()


def test_pods_of_one_name_in_two_namespaces_are_two_replicas(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc")
    with page_server() as api, page_server() as one, page_server() as two:
        pods: list[dict[str, Any]] = []
        for namespace, server, active in (("lab", one, 3), ("ml", two, 5)):
            server.respond("/health")
            server.respond("/metrics", vllm(Work(active=active)))
            port = {"prometheus.io/port": server.url.rpartition(":")[2]}
            pods.append(pod("chat-0", reported() | port))
            pods[-1]["metadata"] |= {"namespace": namespace, "uid": f"uid-{namespace}"}
        api.respond(PODS, answer(*pods))
        api.respond(NODE, node())
        api.respond(NAMES_PATH, names(chat=["lab", "ml"]))
        settings = KubernetesParameters(url=api.url, period_s=0.05, token_file=str(tmp_path / "token"))
        workloads = WorkloadsParameters(period_s=0.05, discover=("kubernetes",), kubernetes=settings)
        collector = WorkloadCollector(workloads, "n1", environ={})

        def rows() -> dict[tuple[str, str], float]:
            read: list[KeyedReading] = collector.read(0, 1)
            return {key: float(row[ACTIVE]) for one in read[:1] for key, row in one.rows.items()}

        expected = {("chat", "chat-0"): 3, ("chat", "chat-0.uid-ml"): 5}
        try:
            until(lambda: rows() == expected)
            uids = {(one.workload, one.replica): one.labels["uid"] for one in collector.parts().allocations}
            assert uids == {("chat", "chat-0"): "uid-lab", ("chat", "chat-0.uid-ml"): "uid-ml"}
            api.respond(PODS, answer(*reversed(pods)))
            requests = len(api.requests)
            until(lambda: len(api.requests) > requests + 6)
            assert rows() == expected, "whatever the order of the list"
        finally:
            collector.close()


def test_no_replica_is_gone_for_a_tick_over_a_reload(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc")
    with page_server() as api:
        api.respond(PODS, answer(pod("chat-a", reported())))
        api.respond(NODE, node())
        api.respond(NAMES_PATH, names())

        def config(period_s: float) -> Config:
            settings = KubernetesParameters(url=api.url, token_file=str(tmp_path / "token"))
            workloads = WorkloadsParameters(period_s=period_s, discover=("kubernetes",), kubernetes=settings)
            agent = AgentParameters(workloads=workloads, disabled=("nvml", "kmsg", "host", "attribution"))
            return Config(agent=agent)

        setup = Setup(config(1.0), "n1")
        try:
            for reload in (False, True):
                if reload:
                    assert "agent.workloads.period_s" in setup.change(config(2.0))
                for collector in setup.collectors:
                    collector.read(0, 1)
                known = [one.replica for collector in setup.collectors for one in collector.parts().allocations]
                assert known == ["chat-a"]
        finally:
            setup.close()


def test_outside_of_a_pod_it_is_refused() -> None:
    with pytest.raises(ConfigError, match="the agent is no pod"):
        PodWatch(KubernetesParameters(), "n1", 1.0, {})


@pytest.mark.parametrize(
    ("more", "ports", "expected"),
    [
        ({"flyball.dev/server": ""}, (8000,), "flyball.dev/server is ''; set one of vllm, triton, tgi, sglang"),
        ({"flyball.dev/work": "steps"}, (8000,), "flyball.dev/work is 'steps'; set requests or tokens"),
        ({}, (), "has no page; set prometheus.io/port"),
    ],
)
def test_annotations_that_are_incomplete(more: dict[str, str], ports: tuple[int, ...], expected: str) -> None:
    (found,) = pods_of(answer(pod("a", reported() | more, ports=ports)).encode())
    with pytest.raises(ConfigError, match=f"^pod ml/a: {expected}"):
        discovered(found)


def test_pods_come_and_go_as_rows(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc")
    with page_server() as api, page_server() as one, page_server() as two:
        for server, page in ((one, vllm(Work(active=3))), (two, sglang(Work(active=5)))):
            server.respond("/health")
            server.respond("/metrics", page)

        def at(url: str, **more: str) -> dict[str, str]:
            return reported(**more) | {"prometheus.io/port": url.rpartition(":")[2]}

        first = pod("chat-a", at(one.url))
        second = pod("tool-b", at(two.url, workload="ml/tool") | {"flyball.dev/server": "sglang"})
        another_s = pod("tool-x", at(two.url, workload="web/tool") | {"flyball.dev/server": "sglang"})
        waits = pod("chat-c", at(one.url), phase="Pending", ip=None)
        wrong = pod("chat-d", at(one.url) | {"flyball.dev/server": "other"})
        api.respond(PODS, answer(first, waits, wrong))
        api.respond(NODE, node())
        api.respond(NAMES_PATH, names())
        settings = KubernetesParameters(url=api.url, period_s=0.05, token_file=str(tmp_path / "token"))
        collector = WorkloadCollector(
            WorkloadsParameters(period_s=0.05, discover=("kubernetes",), kubernetes=settings), "n1", environ={}
        )

        def rows() -> dict[tuple[str, str], tuple[float, float]]:
            read: list[KeyedReading] = collector.read(0, 1)
            return {key: (float(row[ACTIVE]), float(row[READY])) for one in read[:1] for key, row in one.rows.items()}

        try:
            until(lambda: rows().get(("chat", "chat-a")) == (3, 1))
            assert rows()["chat", "chat-c"][1] == 0
            assert math.isnan(rows()["chat", "chat-d"][1])
            problems = collector.problems()
            assert (problems["chat/chat-a"], problems["chat/chat-c"], problems["kubernetes"]) == ("", "", "")
            assert "what it announces does not say" in str(problems["chat/chat-d"])
            allocation = next(a for a in collector.parts().allocations if a.replica == "chat-a")
            assert allocation.runtime == "kubernetes"
            assert allocation.labels == {"namespace": "ml", "pod": "chat-a", "uid": first["metadata"]["uid"]}
            api.respond(PODS, answer(another_s, second))
            until(lambda: rows() == {("ml/tool", "tool-b"): (5, 1)})
            allocations = [(a.workload, a.replica) for a in collector.parts().allocations]
            assert allocations == [("ml/tool", "tool-b")], "no pod of ml speaks for a workload of web"
        finally:
            collector.close()


def test_a_cordoned_node_takes_no_more(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc")
    with page_server() as api:
        api.respond(PODS, answer())
        settings = KubernetesParameters(url=api.url, period_s=0.05, token_file=str(tmp_path / "token"))
        collector = WorkloadCollector(
            WorkloadsParameters(period_s=0.05, discover=("kubernetes",), kubernetes=settings), "n1", environ={}
        )

        def state() -> tuple[bool, str]:
            parts = collector.parts()
            return parts.schedulable, parts.cordon

        def problem() -> str:
            return collector.problems()["kubernetes"] or ""

        try:
            until(lambda: "status 404; check url; without get on nodes no cordon of this node is seen" in problem())
            assert state() == (True, ""), "as long as nothing is known"
            assert collector.errors > 0
            api.respond(NODE, node(closed=True))
            until(lambda: state() == (False, "other"))
            until(lambda: problem() == "")
            api.respond(NODE, '{"kind":"Status","status":"Failure","reason":"Forbidden","code":403}', status=403)
            until(lambda: "status 403" in problem())
            assert state() == (False, "other"), "what was known stays"
            api.respond(NODE, "[]")
            until(lambda: "not a node" in problem())
            api.respond(NODE, node())
            until(lambda: state() == (True, ""))
        finally:
            collector.close()


def test_a_replica_that_gets_no_thread_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("abc")
    with page_server() as api, page_server() as server:
        server.respond("/health")
        server.respond("/metrics", vllm(Work(active=3)))
        pods = [
            pod(f"chat-{name}", reported() | {"prometheus.io/port": server.url.rpartition(":")[2]}) for name in "ab"
        ]
        api.respond(PODS, answer(*pods))
        api.respond(NAMES_PATH, names())
        settings = KubernetesParameters(url=api.url, period_s=0.05, token_file=str(tmp_path / "token"))
        collector = WorkloadCollector(
            WorkloadsParameters(period_s=0.05, discover=("kubernetes",), kubernetes=settings), "n1", environ={}
        )

        def replicas() -> list[str]:
            collector.read(0, 1)
            return [one.replica for one in collector.parts().allocations]

        def active() -> list[float]:
            return [float(row[ACTIVE]) for one in collector.read(0, 1)[:1] for row in one.rows.values()]

        start = threading.Thread.start

        def refuse(thread: threading.Thread) -> None:
            if thread.name.startswith("scrape-"):  # the page server's own threads go on
                raise RuntimeError("can't start new thread")
            start(thread)

        try:
            with monkeypatch.context() as limit:
                limit.setattr(threading.Thread, "start", refuse)
                until(lambda: sorted(replicas()) == ["chat-a", "chat-b"])
                assert "TasksMax" in str(collector.problems()["chat/chat-a"])
                assert collector.errors > 0
            until(lambda: active() == [3, 3])
            assert collector.problems()["chat/chat-a"] == ""
        finally:
            collector.close()
