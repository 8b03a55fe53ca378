"""``flyball incidents`` as whoever is on call has it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from msgspec.structs import replace
from tests.actuators.loop import PARTITIONS, publish
from tests.brokers.embedded import EmbeddedBroker
from tests.cli.shell import check_refused, flyball as process
from tests.contracts.strategies import sample

from flyball_cli.compacted import read_compacted
from flyball_cli.main import flyball
from flyball_contracts.config import KafkaConfig
from flyball_contracts.records import (
    Acknowledgement,
    Incident,
    IncidentAction,
    Label,
    NodeCondition,
    Readmission,
    Silence,
    Symptom,
)
from flyball_contracts.topics import RESPONSES

SYMPTOM = Symptom(
    detector="xid 79", cause="pcie", strength="fault", severity="critical", since_ns=1, time_ns=1, node="node-1",
    device="GPU-1", workload="train", text="fallen off the bus",
)  # fmt: skip


def incident(id_: str, revision: int = 1, **more: Any) -> Incident:
    given: dict[str, Any] = {
        "status": "open", "severity": "critical", "cause": "pcie", "strength": "fault", "level": "gpu",
        "onset_ns": 1, "seen_ns": 2, "time_ns": 3, "summary": f"GPU 3 of node-1 [{id_}]", "node": "node-1",
        "device": "GPU-1", "model": "h100", "symptoms": (SYMPTOM,), "nodes": ("node-1",), "peers": ("node-2",),
    }  # fmt: skip
    return Incident(id=id_, cell="cell-a", revision=revision, **(given | more))


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with EmbeddedBroker(PARTITIONS) as broker:
        filled(broker.bootstrap)
        yield broker.bootstrap


def filled(found: str) -> None:
    move = IncidentAction(decision="d-1", type="Migrate", workload="train", time_ns=2, status="done")
    publish(
        found,
        incident("aaa1"),
        incident("aaa1", 2, acknowledged_by="ann", actions=(move,)),
        incident("bbb1", severity="warning", cause="thermal", strength="sign"),
        incident("ccc1", 3, status="resolved", ended_ns=2),
        incident("ddd1", silence="maintenance"),
        incident("eee1", 2, status="merged", merged_into="aaa1"),
    )


def run(bootstrap: str, *arguments: str) -> str:
    done = CliRunner().invoke(flyball, ["incidents", *arguments, "--bootstrap", bootstrap])
    assert done.exit_code == 0, done.output
    return done.output


def responses(bootstrap: str) -> list[Any]:
    found: list[Any] = [r for _, r in read_compacted(KafkaConfig(bootstrap=bootstrap), RESPONSES, "test")]
    return sorted(found, key=lambda r: r.time_ns)


def test_the_worst_is_first_silenced_ones_are_last_and_what_ended_is_left_out(bootstrap: str) -> None:
    found = json.loads(run(bootstrap, "list", "--json"))
    assert [(one["id"], one["revision"]) for one in found] == [("aaa1", 2), ("bbb1", 1), ("ddd1", 1)]
    everything = json.loads(run(bootstrap, "list", "--json", "--all"))
    assert {one["id"] for one in everything} == {"aaa1", "bbb1", "ccc1", "ddd1", "eee1"}
    table = run(bootstrap, "list")
    assert "GPU 3 of node-1 [aaa1]" in table
    assert "silenced by maintenance" in table


def test_all_that_is_known_of_one_is_reported_and_a_merged_one_leads_to_the_whole(bootstrap: str) -> None:
    for name in ("aaa", "eee1"):
        described = run(bootstrap, "show", name)
        assert "aaa1  critical, open, taken by ann" in described
        assert "xid 79 on GPU-1: fallen off the bus" in described
        assert "Migrate train: done" in described
        assert "peers      node-2" in described


def test_answers_are_on_their_topic_with_who_and_why(bootstrap: str) -> None:
    run(bootstrap, "ack", "bbb1", "--by", "ann", "--reason", "on it")
    run(bootstrap, "label", "bbb1", "--false", "--by", "ann", "--reason", "benchmark")
    run(bootstrap, "silence", "--cell", "cell-a", "--node", "rack-*", "--for", "60", "--name", "w", "--reason", "r")
    ack, label, silence = responses(bootstrap)[-3:]
    assert isinstance(ack, Acknowledgement)
    assert (ack.incident, ack.by, ack.reason, ack.cell) == ("bbb1", "ann", "on it", "cell-a")
    assert isinstance(label, Label)
    assert (label.cause, label.model, label.true) == ("thermal", "h100", False)
    assert isinstance(silence, Silence)
    assert (silence.node, silence.ends_ns - silence.starts_ns) == ("rack-*", 60 * 10**9)
    assert "node=rack-*" in run(bootstrap, "silences")
    run(bootstrap, "unsilence", "w", "--cell", "cell-a")
    assert run(bootstrap, "silences").strip() == "nothing is silenced"


def test_a_maintenance_window_is_declared_beforehand(bootstrap: str) -> None:
    run(
        bootstrap, "silence", "--cell", "cell-a", "--cause", "power", "--from", "2040-01-01T00:00:00", "--for", "3600",
        "--reason", "hall 2", "--name", "window",
    )  # fmt: skip
    silence = responses(bootstrap)[-1]
    assert silence.starts_ns == 2_208_988_800 * 10**9
    assert not silence.holds(silence.starts_ns - 1)
    assert silence.holds(silence.starts_ns)
    run(bootstrap, "unsilence", "window", "--cell", "cell-a")


def test_an_incident_is_silenced_by_the_id_that_the_list_shows(bootstrap: str) -> None:
    """The list shows the first twelve characters."""
    publish(bootstrap, incident("fff1" * 4))
    for given, kept in (("fff1fff1fff1", "fff1" * 4), ("eee1", "aaa1"), ("fff*", "fff*")):
        run(
            bootstrap, "silence", "--cell", "cell-a", "--incident", given, "--for", "60", "--name", "w", "--reason", "r"
        )
        assert responses(bootstrap)[-1].incident == kept
        run(bootstrap, "unsilence", "w", "--cell", "cell-a")
    at = ("--for", "60", "--reason", "r", "--bootstrap", bootstrap)
    elsewhere = process("incidents", "silence", "--cell", "cell-b", "--incident", "aaa1", *at)
    check_refused(elsewhere.returncode, elsewhere.stderr, "'cell-a'", "--cell")


def test_a_silence_is_prolonged_under_its_name_and_not_replaced_by_another(bootstrap: str) -> None:
    of = ("silence", "--cell", "cell-a", "--name", "maintenance", "--reason", "r")
    for lasts in ("60", "120"):
        run(bootstrap, *of, "--node", "rack-1-*", "--for", lasts)
    other = process("incidents", *of, "--node", "rack-2-*", "--for", "60", "--bootstrap", bootstrap)
    check_refused(other.returncode, other.stderr, "'maintenance'", "--name")
    assert responses(bootstrap)[-1].node == "rack-1-*"
    run(bootstrap, "unsilence", "maintenance", "--cell", "cell-a")
    run(bootstrap, *of, "--node", "rack-2-*", "--for", "60")
    run(bootstrap, "unsilence", "maintenance", "--cell", "cell-a")


def test_two_silences_of_one_second_are_two(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(1_600_000_000 * 10**9 + i * 1_000_000 for i in range(1_000))
    monkeypatch.setattr("time.time_ns", lambda: next(now))
    for node in ("n1", "n2"):
        run(bootstrap, "silence", "--cell", "cell-a", "--node", node, "--for", "60", "--reason", "r")
    names = {one.name for one in responses(bootstrap) if isinstance(one, Silence) and one.node in ("n1", "n2")}
    assert len(names) == 2
    for name in names:
        run(bootstrap, "unsilence", name, "--cell", "cell-a")


def test_what_cannot_be_meant_is_one_line(bootstrap: str) -> None:
    at = ("--reason", "r", "--bootstrap", bootstrap)
    unknown = process("incidents", "ack", "zzz", *at)
    check_refused(unknown.returncode, unknown.stderr, "'zzz'", "flyball incidents list")
    everything = process("incidents", "silence", "--cell", "c", "--for", "60", *at)
    check_refused(everything.returncode, everything.stderr, "the whole cell", "--node")
    window = ("--cell", "c", "--node", "n", "--from", "2020-01-01T00:00:00", "--for", "60")
    over = process("incidents", "silence", *window, *at)
    check_refused(over.returncode, over.stderr, "2020-01-01 00:01:00 UTC", "--from is in UTC")


def test_nodes_that_are_out_are_listed_and_readmitted_with_evidence(bootstrap: str) -> None:
    out = NodeCondition(
        node="gpu-1", cell="cell-a", time_ns=3, revision=1, condition="cordoned", since_ns=3, reason="xid 79",
        gpus_moved=64,
    )  # fmt: skip
    publish(bootstrap, out, replace(out, node="gpu-2", condition="back"))
    shown = run(bootstrap, "nodes")
    assert "gpu-1" in shown
    assert "gpu-2" not in shown
    run(bootstrap, "readmit", "gpu-1", "--cell", "cell-a", "--evidence", "dcgmi passed", "--by", "ann")
    response = responses(bootstrap)[-1]
    assert isinstance(response, Readmission)
    assert (response.node, response.evidence, response.by) == ("gpu-1", "dcgmi passed", "ann")


def test_the_check_of_a_node_runs_there_and_readmits_it_only_where_it_passes(bootstrap: str) -> None:
    job = yaml.safe_load(run(bootstrap, "check", "gpu-1", "--cell", "c", "--image", "dcgm", "--flyball-image", "f"))
    pod = job["spec"]["template"]["spec"]
    assert pod["nodeName"] == "gpu-1"
    (check,), (readmit,) = pod["initContainers"], pod["containers"]
    assert (check["command"][-1], check["resources"]["limits"]) == ("dcgmi diag -r 3", {"nvidia.com/gpu": 8})
    assert (pod["restartPolicy"], job["spec"]["backoffLimit"]) == ("Never", 0)
    done = CliRunner().invoke(flyball, readmit["command"][1:])
    assert done.exit_code == 0, done.output
    assert responses(bootstrap)[-1].evidence == "dcgmi diag -r 3 passed on dcgm"


def test_samples_of_all_responses_have_keys_of_their_own() -> None:
    keys = {sample(kind, full=True).key for kind in (Acknowledgement, Silence, Label, Readmission)}
    assert len(keys) == 4
