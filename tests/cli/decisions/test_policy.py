"""``flyball policy test``: what a configuration would have stopped of the decisions in a recording."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.actuators.samples import NOW, S, inventory, migrate, preempt, scale, spec
from tests.cli.shell import check_refused, flyball

from flyball_contracts.codec import record_message
from flyball_contracts.records import Allocation, Record
from flyball_streams.recording import RecordedMessage, RecordingWriter

POLICIES = """\
actuator:
  policies:
    - {name: core, workloads: [db], protect: true}
    - {name: calm, limits: [{per: workload, window_s: 600, actions: 1}]}
    - {name: idle, workloads: [nobody], protect: true}
"""


def recorded(path: Path, *records: tuple[Record, int]) -> Path:
    """A recording of records, each with its time in ns."""
    with RecordingWriter(path, made_by="tests") as writer:
        for offset, (record, time_ns) in enumerate(records):
            m = record_message(record, "/test")
            headers: list[tuple[str, bytes | None]] = [*m.headers]
            writer.append(RecordedMessage(m.topic, 0, offset, time_ns, time_ns // 10**6, m.key, m.value, headers))
    return path


@pytest.fixture(name="recording")
def _recording(tmp_path: Path) -> Path:
    known = [spec(), spec("db"), inventory(workload="chat", replicas=4)]
    decisions = [
        scale("a", time_ns=NOW + S),
        scale("b", time_ns=NOW + 60 * S),
        scale("c", workload="db", time_ns=NOW + 61 * S),
        scale("d", time_ns=NOW + 700 * S),
        migrate("e", time_ns=NOW + 1400 * S),
        scale("f", workload="ghost", time_ns=NOW + 1401 * S),
    ]
    return recorded(tmp_path / "r.parquet", *((one, NOW) for one in known), *((one, one.time_ns) for one in decisions))


def test_what_would_have_been_stopped_is_shown_by_rule(recording: Path, tmp_path: Path) -> None:
    config, out = tmp_path / "candidate.yaml", tmp_path / "verdicts.json"
    config.write_text(POLICIES)
    done = flyball("policy", "test", recording, "--config", config, "--json", out)
    assert done.returncode == 0, done.stderr
    verdicts = {one["decision"]: (one["verdict"], one["code"], one["policy"]) for one in json.loads(out.read_text())}
    assert verdicts == {
        "a": ("accepted", "", ""),
        "b": ("refused", "limit", "calm"),
        "c": ("refused", "protected", "core"),
        "d": ("accepted", "", ""),
        "e": ("accepted", "", ""),
        "f": ("refused", "unknown_target", ""),
    }
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["policy", "core", "1", "1", "0", "0", "0", "1"] in rows
    assert ["accepted", "3", "2", "1", "0", "0", "1"] in rows
    assert "stopped nothing: idle" in done.stdout


@pytest.mark.parametrize(("driver", "code"), [("simulated", ""), ("slurm", "tenant_mixed")])
def test_a_named_node_counts_where_the_platform_keeps_to_it(driver: str, code: str, tmp_path: Path) -> None:
    half = {"gpus_per_replica": 0.5}
    of_other = Allocation(workload="other", replica="other-0", devices=(0,), runtime="kubernetes")
    recording = recorded(
        tmp_path / "r.parquet",
        (replace(spec(), tenant="a", **half), NOW),
        (replace(spec("other"), tenant="b", **half), NOW),
        (inventory("n1"), NOW),
        (replace(inventory("n2", devices=1), allocations=(of_other,)), NOW),
        (migrate("m", from_node="n2", to_node="n1"), NOW + S),
    )
    config, out = tmp_path / "candidate.yaml", tmp_path / "verdicts.json"
    config.write_text(f"actuator: {{platforms: [{{driver: {driver}}}]}}")
    done = flyball("policy", "test", recording, "--config", config, "--json", out)
    assert done.returncode == 0, done.stderr
    assert [one["code"] for one in json.loads(out.read_text())] == [code]


def test_without_policies_the_limits_alone_are_tried(recording: Path) -> None:
    done = flyball("policy", "test", recording)
    assert done.returncode == 0, done.stderr
    assert "policy" not in done.stdout
    assert "unknown_target" in done.stdout


def test_a_recording_without_decisions_is_refused(tmp_path: Path) -> None:
    path = recorded(tmp_path / "r.parquet", (spec(), NOW), (inventory(), NOW))
    done = flyball("policy", "test", path)
    check_refused(done.returncode, done.stderr, "has no decisions")
    assert preempt().id not in done.stdout


def test_a_policy_that_cannot_be_names_its_line(recording: Path, tmp_path: Path) -> None:
    config = tmp_path / "candidate.yaml"
    config.write_text("actuator:\n  policies:\n    - {name: core}\n")
    done = flyball("policy", "test", recording, "--config", config)
    check_refused(done.returncode, done.stderr, "candidate.yaml:3: actuator.policies[0]", "it has no rule")
