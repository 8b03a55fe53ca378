"""Every code block of the documents that a newcomer follows is run by a test that is named here, or has a reason."""

import re

import pytest
from tests.conftest import ROOT
from tests.readme.blocks import BLOCKS, FENCE

COMMANDS = "tests/cli/recordings/test_readme_commands.py"
SERVICES = "tests/readme/test_long_running.py"
CLUSTER = "tests/kubernetes/test_readme.py"
RUN_BY: dict[str, tuple[str, ...]] = {
    "make demo     #": ("tests/demo/test_make.py::test_the_page_is_served_until_it_is_interrupted",),
    'make demo ARGS="--speed 60"': (
        "tests/demo/test_make.py::test_the_page_is_served_until_it_is_interrupted",
        "tests/demo/test_make.py::test_hours_pass_in_minutes_without_a_page",
    ),
    "pip install 'flyball[agent]'": ("tests/readme/test_install.py::test_the_agent_is_installed_and_measures",),
    "flyball workloads example": (f"{COMMANDS}::test_workloads_are_declared_listed_shown_and_removed",),
    "flyball record": (
        f"{COMMANDS}::test_a_recording_is_made_replayed_compared_and_asked",
        f"{SERVICES}::test_what_runs_on_a_kafka_of_your_own",
    ),
    "flyball import": ("tests/demo/test_demo.py::test_recording",),
    "flyball worker --config flyball.yaml --history": (f"{SERVICES}::test_a_worker_starts_from_a_recording",),
    "flyball backtest": ("tests/cli/recordings/test_backtest.py::test_the_readmes_line_writes_its_page",),
    "flyball feed": (f"{SERVICES}::test_feeds_are_asked_once_and_published",),
    "cp infra/env.example .env": ("tests/infra/test_compose.py::test_the_readmes_lines_find_what_they_name",),
    "flyball policy test": (
        f"{COMMANDS}::test_a_recording_is_made_replayed_compared_and_asked",
        f"{COMMANDS}::test_controls_and_incidents_are_answered",
    ),
    "flyball audit verify": (f"{COMMANDS}::test_a_trail_is_verified_and_one_decision_shown",),
    "kubectl apply -f infra/kubernetes/actuator.yaml": (
        f"{CLUSTER}::test_the_actuator_gets_its_rights_and_its_decision_is_named",
    ),
    "apiVersion: flyball.dev/v1alpha1": (f"{CLUSTER}::test_policies_are_applied_and_answered",),
    "kubectl apply -f infra/kubernetes/crds.yaml": (f"{CLUSTER}::test_policies_are_applied_and_answered",),
    "kubectl apply -f infra/kubernetes/autoscaler.yaml": (
        "tests/kubernetes/autoscalers/test_keda_operator.py"
        "::test_the_readmes_lines_make_the_provider_and_its_autoscalers",
    ),
    "kubectl apply -f infra/kubernetes/kueue.yaml": (
        "tests/kubernetes/delegation/test_kueue.py::test_the_readmes_lines_make_a_queue_whose_job_flyball_starts",
    ),
    "flyball config example webhook_server.py": (
        f"{COMMANDS}::test_a_server_behind_driver_webhook_keeps_to_the_contract",
    ),
    "docker run": ("tests/docker/test_service.py::test_a_container_that_was_run_as_the_readme_shows_is_scaled",),
    "flyball incidents list": (
        f"{COMMANDS}::test_controls_and_incidents_are_answered",
        f"{SERVICES}::test_incidents_are_notified",
    ),
    "flyball waste": (
        f"{COMMANDS}::test_what_workers_found_wasted_is_read_from_the_broker",
        f"{COMMANDS}::test_a_recording_is_made_replayed_compared_and_asked",
    ),
}
"""Tests by the beginning of the block, which they take by these words. Together they run all of its lines, but for
`make test`: that is what runs them.
"""
SUBSCRIBERS = "tests/subscribers/test_subscribers.py"
TAKEN_OTHERWISE: dict[str, tuple[str, str]] = {
    "for image in agent worker actuator; do docker build": (
        "tests/kubernetes/helm/test_path.py::test_from_a_cluster_to_advice_and_to_acting",
        "FIRST, MORE",
    ),
    "helm upgrade": ("tests/kubernetes/helm/test_path.py::test_from_a_cluster_to_advice_and_to_acting", "FIRST, MORE"),
    "error:": ("tests/test_readme.py::test_a_mistake_is_told_as_it_is_shown", "error: {raised.value}"),
    "import json": ("tests/test_readme.py::test_the_subscriber_in_python_hears_every_kind_of_decision", "Consumer("),
    "import base64": ("tests/test_readme.py::test_a_signature_is_verified_as_shown", "def verify"),
    "package main": (f"{SUBSCRIBERS}::test_a_subscriber_hears_every_kind_of_decision", 'block("go")'),
    "import { Kafka }": (f"{SUBSCRIBERS}::test_a_subscriber_hears_every_kind_of_decision", 'block("js")'),
}
"""Tests that take their block by its place, language or content, and the words by which they do."""
CONFIGURATIONS = "tests/test_readme.py::test_configurations_load"
NOT_RUN = {
    " GPU node": "a picture",
    "make test       # sets": "CONTRIBUTING.md: these are the commands by which this test itself is run",
    " agents, feeds": "a picture",
}
OTHERS = [
    found
    for name in ("CONTRIBUTING.md", "ARCHITECTURE.md")
    for found in FENCE.findall((ROOT / name).read_text())
]  # fmt: skip


@pytest.mark.parametrize(("language", "text"), [*BLOCKS, *OTHERS])
def test_a_block_is_run_or_has_a_reason(language: str, text: str) -> None:
    if language == "yaml":
        return  # by `CONFIGURATIONS`, which takes all of this language
    found = [first for first in (*RUN_BY, *TAKEN_OTHERWISE, *NOT_RUN) if text.startswith(first)]
    assert len(found) == 1, f"name the test that runs this block in {__file__}:\n{text}"


def test_no_entry_is_without_its_block() -> None:
    texts = [text for _, text in (*BLOCKS, *OTHERS)]
    entries = (*RUN_BY, *TAKEN_OTHERWISE, *NOT_RUN)
    assert [first for first in entries if not any(text.startswith(first) for text in texts)] == []


@pytest.mark.parametrize(
    ("test", "words"),
    [
        *((test, f"{first}") for first, tests in RUN_BY.items() for test in tests),
        *TAKEN_OTHERWISE.values(),
        (CONFIGURATIONS, 'language == "yaml"'),
    ],
)
def test_a_test_that_is_named_takes_the_block(test: str, words: str) -> None:
    path, _, name = test.partition("::")
    text = (ROOT / path).read_text()
    assert re.search(rf"^def {name}\(", text, re.MULTILINE), test
    assert words in text, f"{path} does not take the block that begins with {words!r}"
