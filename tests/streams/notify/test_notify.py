"""Incidents reach whoever is on call: at least once, in the words of Alertmanager, and never when silenced."""

import json
import os
import shutil
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.actuators.loop import PARTITIONS, publish, read_all
from tests.brokers.embedded import EmbeddedBroker
from tests.brokers.server import LOOPBACK, Server, free_ports
from tests.cli.decisions.test_incidents import incident
from tests.conftest import ROOT
from tests.streams.notify.receivers import Receiver, receiving

from flyball_contracts.codec import decode_record
from flyball_contracts.config import KafkaConfig
from flyball_contracts.errors import ConfigError
from flyball_contracts.records import Incident
from flyball_contracts.topics import DEAD_LETTERS, INCIDENTS
from flyball_streams.notify import NotifierReport, run as running, run_notifier, targets as to
from flyball_streams.notify.targets import Alertmanager, Poster, Refused, Target, Webhook

NOW_NS = 1_800_000_000 * 10**9
S = 10**9


@pytest.fixture
def bootstrap(embedded_broker: Callable[..., EmbeddedBroker]) -> str:
    return embedded_broker(PARTITIONS).bootstrap


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "POLL_S", 0.02)
    monkeypatch.setattr(running, "FIRST_WAIT_S", 0.05)


def once(bootstrap: str, *targets: Target, now_ns: int = NOW_NS) -> NotifierReport:
    kafka = KafkaConfig(bootstrap=bootstrap)
    return run_notifier(kafka, targets, stop=threading.Event(), once=True, wall_ns=lambda: now_ns)


def named(receiver: Receiver) -> list[tuple[str, bool]]:
    """Incidents of all alerts that came, and whether each goes on."""
    return [(a["labels"]["incident"], a["endsAt"] > "2027-01-15T08:00:00.000Z") for a in receiver.alerts]


def test_each_is_reported_once_with_all_that_names_it_and_again_after_an_outage_of_the_receiver(bootstrap: str) -> None:
    publish(bootstrap, incident("a", onset_ns=NOW_NS - 60 * S), incident("b", severity="info", cause="intervention"))
    with receiving(Receiver(away=2)) as pager:
        assert once(bootstrap, Alertmanager(pager.url, page="https://fleet.example/")).delivered == 1
        assert pager.refused == 2
        assert pager.wrong == []
        (alert,) = pager.alerts
    assert alert["labels"] == {
        "alertname": "FlyballIncident", "incident": "a", "cell": "cell-a", "severity": "critical", "cause": "pcie",
        "level": "gpu", "node": "node-1", "gpu": "GPU-1",
    }  # fmt: skip
    assert alert["startsAt"] == "2027-01-15T07:59:00.000Z"
    assert alert["endsAt"] == "2027-01-15T08:05:00.000Z"
    assert alert["annotations"]["summary"] == "GPU 3 of node-1 [a]"
    assert alert["generatorURL"] == "https://fleet.example/incidents/a"


def test_a_silenced_one_is_reported_to_no_receiver_and_one_that_is_silenced_later_ends(bootstrap: str) -> None:
    publish(bootstrap, incident("a", silence="window"), incident("b"))
    with receiving(Receiver()) as pager, receiving(Receiver()) as hook:
        targets = Alertmanager(pager.url), Webhook(hook.url)
        once(bootstrap, *targets)
        assert named(pager) == [("b", True)]
        assert [(b["incident"]["id"], b["status"]) for b in hook.bodies] == [("b", "firing")]
        publish(bootstrap, incident("b", 2, silence="window"))
        once(bootstrap, *targets)
        assert named(pager)[1:] == [("b", False)]
        assert len(hook.bodies) == 1
        publish(bootstrap, incident("b", 3, silence="window", status="resolved", ended_ns=5))
        once(bootstrap, *targets)
        assert hook.bodies[-1]["status"] == "resolved"


def test_when_it_gets_worse_the_alert_of_before_ends_and_when_it_is_over_so_does_the_alert(bootstrap: str) -> None:
    publish(bootstrap, incident("a", severity="warning"))
    with receiving(Receiver()) as pager:
        target = Alertmanager(pager.url)
        once(bootstrap, target)
        publish(bootstrap, incident("a", 2))
        once(bootstrap, target)
        publish(bootstrap, incident("a", 3, status="resolved"))
        once(bootstrap, target)
        reported = [
            (a["labels"]["severity"], goes_on) for a, (_, goes_on) in zip(pager.alerts, named(pager), strict=True)
        ]
    assert reported == [("warning", True), ("critical", True), ("warning", False), ("critical", False)]


def test_after_a_restart_what_goes_on_is_reported_again_and_what_is_delivered_is_not_to_a_webhook(
    bootstrap: str,
) -> None:
    publish(bootstrap, incident("a"), incident("b"))
    with receiving(Receiver()) as pager, receiving(Receiver()) as hook:
        once(bootstrap, Alertmanager(pager.url), Webhook(hook.url))
        publish(bootstrap, incident("b", 2, status="resolved"), incident("c"))
        once(bootstrap, Alertmanager(pager.url), Webhook(hook.url))
        assert sorted(named(pager)[2:]) == [("a", True), ("b", False), ("c", True)]
        assert [(b["incident"]["id"], b["status"]) for b in hook.bodies[2:]] == [("b", "resolved"), ("c", "firing")]
        assert [h["Idempotency-Key"] for h in hook.headers[2:]] == ["b/2", "c/1"]


def test_what_a_crash_lost_is_reported_after_it(bootstrap: str) -> None:
    """The receiver never answered, so nothing was committed."""
    publish(bootstrap, incident("a"))
    stop = threading.Event()
    with receiving(Receiver(away=1_000_000)) as away:
        kafka = KafkaConfig(bootstrap=bootstrap)
        thread = threading.Thread(target=run_notifier, args=(kafka, [Webhook(away.url)]), kwargs={"stop": stop})
        thread.start()
        while away.refused < 2:
            stop.wait(0.01)
        stop.set()
        thread.join()
    with receiving(Receiver()) as hook:
        assert once(bootstrap, Webhook(hook.url)).delivered == 1
        assert [b["incident"]["id"] for b in hook.bodies] == ["a"]


def test_the_end_is_reported_though_a_restart_came_between_while_another_receiver_was_away(bootstrap: str) -> None:
    """Nothing is committed while a receiver is away, so it is unknown to the next run what the others have."""
    publish(bootstrap, incident("a"))
    with receiving(Receiver()) as hook:
        once(bootstrap, Webhook(hook.url))
        publish(bootstrap, incident("b"))
        stop = threading.Event()
        with receiving(Receiver(away=1_000_000)) as away:
            kafka, targets = KafkaConfig(bootstrap=bootstrap), [Webhook(away.url), Webhook(hook.url)]
            thread = threading.Thread(target=run_notifier, args=(kafka, targets), kwargs={"stop": stop})
            thread.start()
            while len(hook.bodies) < 2:
                stop.wait(0.01)
            stop.set()
            thread.join()
        publish(bootstrap, incident("b", 2, status="resolved"), incident("c", silence="w"))
        publish(bootstrap, incident("c", 2, silence="w", status="resolved"))
        once(bootstrap, Webhook(hook.url))
        assert [(b["incident"]["id"], b["status"]) for b in hook.bodies[1:]] == [("b", "firing"), ("b", "resolved")]


def test_one_that_answers_slowly_does_not_keep_the_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(to, "SLICE_S", 0.0)
    with receiving(Receiver()) as hook:
        target = Webhook(hook.url)
        for name in "abc":
            target.take(incident(name), is_new=True)
        assert [target.send(NOW_NS) for _ in range(4)] == [1, 1, 1, 0]
        assert target.is_done


def test_one_receiver_that_is_away_does_not_keep_the_others_waiting() -> None:
    with receiving(Receiver(away=9)) as away, receiving(Receiver()) as hook:
        slow, quick = Webhook(away.url), Webhook(hook.url)
        for target in (slow, quick):
            target.take(incident("a"), is_new=True)
        posts = [running._Post(target, lambda: 0.0, NotifierReport()) for target in (slow, quick)]  # pyright: ignore[reportPrivateUsage]
        assert [post.send(NOW_NS) for post in posts] == [0, 1]
        assert (slow.is_done, quick.is_done) == (False, True)
        assert posts[0].send(NOW_NS) == 0
        assert away.refused == 1  # it waits before it tries again


@pytest.mark.parametrize("status", [400, 413, 422])
def test_what_a_receiver_will_never_take_is_published_once_and_delays_no_other(
    bootstrap: str, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    publish(bootstrap, *(incident(name) for name in ("a", "b", "c", "d", "e")))
    with receiving(Receiver(status=status, unfit="b")) as pager, receiving(Receiver(status=status, unfit="b")) as hook:
        targets = Alertmanager(pager.url), Webhook(hook.url)
        report = once(bootstrap, *targets)
        assert sorted(named(pager)) == [(name, True) for name in "acde"]
        assert [b["incident"]["id"] for b in hook.bodies] == list("acde")
        assert (report.delivered, report.refused, report.retries) == (8, 2, 0)
        letters = dead_letters(bootstrap)
        assert [(topic, one.id) for topic, one, _ in letters] == [("flyball.incidents.v1", "b")] * 2
        assert {why for _, _, why in letters} == {f"{one.url} answers {status}: " for one in (pager, hook)}
        assert [r.levelname for r in caplog.records if "incident b" in r.message] == ["ERROR", "ERROR"]
        requested = pager.refused, hook.refused
        publish(bootstrap, incident("b", 2, severity="warning"), incident("f"))
        assert once(bootstrap, *targets).refused == 0
        publish(bootstrap, incident("b", 3, status="resolved"))
        assert once(bootstrap, *targets).refused == 0
        assert (pager.refused, hook.refused) == requested
        assert hook.bodies[-1]["incident"]["id"] == "f"


def test_of_one_that_becomes_unfit_the_end_is_reported_at_least(bootstrap: str) -> None:
    publish(bootstrap, incident("a", severity="warning"))
    with receiving(Receiver(status=413, unfit="2nd")) as pager, receiving(Receiver(status=413, unfit="2nd")) as hook:
        targets = Alertmanager(pager.url), Webhook(hook.url)
        once(bootstrap, *targets)
        publish(bootstrap, incident("a", 2, summary="2nd"))
        assert once(bootstrap, *targets).refused == 2
        publish(bootstrap, incident("a", 3, status="resolved", severity="warning"))
        once(bootstrap, *targets)
        assert named(pager) == [("a", True), ("a", False)]
        assert [b["status"] for b in hook.bodies] == ["firing", "resolved"]


@pytest.mark.parametrize("status", [429, 500, 503, 401])
def test_what_may_be_taken_yet_is_tried_again(bootstrap: str, status: int) -> None:
    publish(bootstrap, incident("a"))
    with receiving(Receiver(away=2, status=status)) as hook:
        report = once(bootstrap, Webhook(hook.url))
        assert (report.delivered, report.refused, report.retries) == (1, 0, 2)


def dead_letters(bootstrap: str) -> list[tuple[str, Incident, str]]:
    """What lies in the dead letters: from which topic, the incident, and why."""
    found: list[tuple[str, Incident, str]] = []
    for value, headers in read_all(bootstrap, DEAD_LETTERS.name):
        record = decode_record(INCIDENTS.name, value, headers)
        assert isinstance(record, Incident)
        reported = dict(headers)
        topic, why = (reported[f"__connect.errors.{name}"].decode() for name in ("topic", "exception.message"))
        found.append((topic, record, why))
    return found


def test_a_flood_of_changes_that_matter_to_no_receiver_is_one_message() -> None:
    with receiving(Receiver()) as hook:
        target = Webhook(hook.url)
        for revision in range(1, 50):
            target.take(incident("a", revision, symptom_count=revision), is_new=True)
            target.send(NOW_NS)
        assert len(hook.bodies) == 1


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://x", "no address"),
        ("http://", "no address"),
        ("http://a:b@host", "--token-env"),
        ("http://h:x", "http"),
        ("http://host/straße", "no address"),
        ("http://a..b/hook", "no address"),
    ],
)
def test_a_wrong_address_is_one_clear_error(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Poster(url, "")


@pytest.mark.parametrize("path", ["/hook/?key=s3cret&channel=1", "/hook/", "/hook?key=s3cret", ""])
def test_the_whole_address_is_requested_and_no_message_has_its_query(path: str) -> None:
    with receiving(Receiver(away=1, status=401)) as hook:
        post = Webhook(hook.url + path)
        post.take(incident("a"), is_new=True)
        with pytest.raises(Refused) as refused:
            post.send(NOW_NS)
        assert "s3cret" not in str(refused.value)
        assert post.send(NOW_NS) == 1
        assert hook.paths == [path or "/"] * 2


def test_a_redirect_is_refused_with_where_it_leads() -> None:
    with (
        receiving(Receiver(away=1, status=308)) as hook,
        pytest.raises(Refused, match="308, a redirect to https://new"),
    ):
        Poster(hook.url, "")([])


def test_an_incident_that_begins_in_the_future_of_a_slow_clock_is_an_alert_all_the_same() -> None:
    with receiving(Receiver()) as pager:
        target = Alertmanager(pager.url)
        target.take(incident("a", onset_ns=NOW_NS + 400 * S), is_new=True)
        assert target.send(NOW_NS) == 1
        assert target.send(NOW_NS - 3600 * S) == 1, "it is repeated though the clock was set back"
        assert (pager.wrong, target.refused) == ([], [])


def test_a_receiver_that_refuses_says_so() -> None:
    with receiving(Receiver(away=1, status=401)) as hook, pytest.raises(Refused, match="401"):
        Poster(hook.url, "")([])


@pytest.fixture(scope="module")
def alertmanager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    binary = (
        os.environ.get("FLYBALL_ALERTMANAGER")
        or shutil.which("prometheus-alertmanager")
        or str(ROOT / ".cache" / "alertmanager" / "alertmanager")
    )
    if not Path(binary).is_file():
        pytest.skip(f"no {binary}; run infra/alertmanager/fetch, or set FLYBALL_ALERTMANAGER")
    folder = tmp_path_factory.mktemp("alertmanager")
    config = folder / "alertmanager.yml"
    config.write_text("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n")
    (port,) = free_ports(1)
    url = f"http://{LOOPBACK}:{port}"
    server = Server(
        "Alertmanager",
        [binary, f"--config.file={config}", f"--storage.path={folder}", "--cluster.listen-address=",
         f"--web.listen-address={LOOPBACK}:{port}"],
        folder / "log",
    )  # fmt: skip
    try:
        server.wait_until(lambda: get(f"{url}/api/v2/status") is not None, 30.0)
        yield url
    finally:
        server.stop()


def get(url: str) -> Any:
    try:
        with urllib.request.urlopen(url, timeout=2.0) as answer:
            return json.load(answer)
    except OSError:
        return None


@pytest.mark.integration
def test_a_real_alertmanager_shows_what_goes_on_and_forgets_what_is_over(bootstrap: str, alertmanager: str) -> None:
    import time

    def active() -> dict[str, str]:
        found = get(f"{alertmanager}/api/v2/alerts?active=true")
        return {alert["labels"]["incident"]: alert["labels"]["severity"] for alert in found}

    target = Alertmanager(alertmanager)
    publish(bootstrap, incident("a", severity="warning"), incident("b"), incident("c", silence="window"))
    once(bootstrap, target, now_ns=time.time_ns())
    assert active() == {"a": "warning", "b": "critical"}
    publish(bootstrap, incident("a", 2), incident("b", 2, status="resolved"))
    once(bootstrap, target, now_ns=time.time_ns())
    once(bootstrap, Alertmanager(alertmanager), now_ns=time.time_ns())
    assert active() == {"a": "critical"}
