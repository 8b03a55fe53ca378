"""Names of workloads."""

from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from flyball_collectors.attribution.naming import Named, Pod, PodNames, name_of, stem
from flyball_collectors.attribution.owner import Owner
from flyball_contracts.config import parse_config
from flyball_contracts.config.attribution import AttributionConfig, NamingRule
from flyball_contracts.errors import ConfigError

UID = "0a1b2c3d-1111-2222-3333-444455556666"
POD = Owner("kubernetes", UID)


@pytest.mark.parametrize(
    ("pod", "workload"),
    [
        ("chat-7c9bdf6d5b-x2x7k", "chat"),  # Deployment
        ("llama-3-7c9bdf6d5b-x2x7k", "llama-3"),
        ("web-0", "web"),  # StatefulSet
        ("bert-worker-12", "bert-worker"),
        ("exporter-zq5lt", "exporter"),  # DaemonSet, Job
        ("night-28433280-bz4xw", "night"),  # CronJob
        ("train-2-bz4xw", "train-2"),  # an indexed Job, or a Job of that name
        ("llama-small", "llama-small"),  # five letters that are a word
        ("notebook", "notebook"),
        ("kube-proxy-node1", "kube-proxy-node1"),
        ("-0", "-0"),
        ("", ""),
    ],
)
def test_stems_of_pods(pod: str, workload: str) -> None:
    assert stem(pod) == workload


@settings(deadline=None)
@given(st.text())
def test_any_name_has_a_stem(pod: str) -> None:
    assert pod.startswith(stem(pod))
    assert bool(stem(pod)) == bool(pod)


@pytest.mark.parametrize(
    ("owner", "pod", "named"),
    [
        (POD, Pod("ml", "chat-7c9bdf6d5b-x2x7k"), ("ml/chat", "chat-7c9bdf6d5b-x2x7k")),
        (POD, None, (f"pod/{UID}", UID)),
        (Owner("slurm", "123", "0"), None, ("slurm/123", "123.n1")),
        (Owner("container", 64 * "a"), None, (f"container/{12 * 'a'}", 12 * "a")),
        (Owner("process", "ollama.service"), None, ("process/ollama.service", "ollama.service.n1")),
    ],
)
def test_what_units_are_called(owner: Owner, pod: Pod | None, named: tuple[str, str]) -> None:
    assert name_of(owner, "n1", pod)[:2] == named


def test_the_first_rule_that_fits_names_the_workload() -> None:
    rules = (
        NamingRule(match={"runtime": "*"}, workload="any-*"),  # lets units choose, and names none
        NamingRule(match={"runtime": "slurm"}, workload="batch"),
        NamingRule(match={"namespace": "ml", "pod": "chat-*"}, workload="chat"),
        NamingRule(match={"namespace": "*"}, workload="other"),
    )
    found = [
        name_of(owner, "n1", pod, rules).workload
        for owner, pod in (
            (POD, Pod("ml", "chat-0")),
            (POD, Pod("web", "chat-0")),
            (Owner("slurm", "1"), None),
            (Owner("process", "x.service"), None),
        )
    ]
    assert found == ["chat", "other", "batch", "process/x.service"]
    assert name_of(POD, "n1", Pod("ml", "chat-0"), rules) == Named(
        "chat", "chat-0", {"namespace": "ml", "pod": "chat-0", "uid": UID}
    )


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("rules: [{match: {}, workload: x}]", r"rules\[0\]\.match"),
        ("rules: [{match: {namspace: x}, workload: x}]", "namspace"),
        ("rules: [{match: {pod: x}, workload: ''}]", r"rules\[0\]\.workload"),
        ("rules: [{match: {pod: x}, workload: 'ml/*'}]", r"rules\[0\].*'ml/\*' is a pattern with a '/'"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(text: str, where: str) -> None:
    with pytest.raises(ConfigError, match=where):
        parse_config(text, AttributionConfig)


def test_pods_are_named_by_their_log_folders(tmp_path: Path) -> None:
    names = PodNames(tmp_path / "pods")
    assert names.find([UID]) == {}
    for folder in (f"ml_chat-0_{UID}", "web_shop-1_other", "broken", "a_b"):
        (tmp_path / "pods" / folder / "server").mkdir(parents=True)
    assert names.find([UID, "unknown"]) == {UID: Pod("ml", "chat-0")}
    (tmp_path / "pods" / f"ml_chat-0_{UID}" / "server").rmdir()
    (tmp_path / "pods" / f"ml_chat-0_{UID}").rmdir()
    assert names.find([UID]) == {UID: Pod("ml", "chat-0")}  # known names are kept while they are requested
