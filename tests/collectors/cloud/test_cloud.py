"""Instance metadata of three clouds: what they say becomes the inventory's place and events, once each."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tests.collectors.cloud.cloud_server import Metadata, metadata

from flyball_collectors.agent.diagnosis.doctor import Finding, explain
from flyball_collectors.agent.identity import Identity
from flyball_collectors.agent.inventory import build_inventory
from flyball_collectors.base import Parts, Place
from flyball_collectors.cloud import CLOUDS, CloudCollector, MetadataError, open_cloud
from flyball_collectors.cloud.detect import AZURE_TAG, provider_of
from flyball_collectors.cloud.http import MetadataServer
from flyball_collectors.nvml import Absent
from flyball_collectors.parameters import AgentParameters, CloudParameters
from flyball_contracts.config import Config
from flyball_contracts.records import NodeEvent

T = 1_700_000_000_000_000_000
DATA = "/latest/meta-data/"
ACTION, REBALANCE, PLANNED = (
    f"{DATA}{key}"
    for key in ("spot/instance-action", "events/recommendations/rebalance", "events/maintenance/scheduled")
)
GOOGLE = "/computeMetadata/v1/instance/"
COMPUTE = "/metadata/instance/compute?api-version=2021-02-01&format=json"
EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"


def set_aws(server: Metadata) -> None:
    server.tokens = []
    server.pages = {
        f"{DATA}placement/region": "us-east-2",
        f"{DATA}placement/availability-zone": "us-east-2b",
        f"{DATA}instance-type": "p5.48xlarge",
        f"{DATA}instance-life-cycle": "spot",
        PLANNED: "[]",
    }


def set_gcp(server: Metadata) -> None:
    server.headers = {"Metadata-Flavor": "Google"}
    server.answer_headers = {"Metadata-Flavor": "Google"}
    server.pages = {
        f"{GOOGLE}zone": "projects/123456789/zones/us-central1-a",
        f"{GOOGLE}machine-type": "projects/123456789/machineTypes/a3-highgpu-8g\n",
        f"{GOOGLE}scheduling/preemptible": "TRUE",
        f"{GOOGLE}preempted": "FALSE",
        f"{GOOGLE}maintenance-event": "NONE",
    }


def set_azure(server: Metadata) -> None:
    server.headers = {"Metadata": "true"}
    compute = {"location": "westeurope", "vmSize": "Standard_ND96isr_H100_v5", "name": "gpu_7", "zone": "2"}
    server.pages = {
        COMPUTE: json.dumps(compute | {"priority": "Spot", "osType": "Linux", "tagsList": []}),
        EVENTS: json.dumps({"DocumentIncarnation": 1, "Events": []}),
    }


SETUPS: dict[str, Callable[[Metadata], None]] = {"aws": set_aws, "gcp": set_gcp, "azure": set_azure}


@pytest.fixture
def server() -> Iterator[Metadata]:
    with metadata() as found:
        yield found


def collector(name: str, server: Metadata, timeout_s: float = 1.0, period_s: float = 5.0) -> CloudCollector:
    settings = CloudParameters(address=server.url, timeout_s=timeout_s, period_s=period_s)
    found = open_cloud(name, "n1", settings=settings)
    assert isinstance(found, CloudCollector)
    return found


@pytest.fixture(params=SETUPS)
def any_cloud(request: pytest.FixtureRequest, server: Metadata) -> CloudCollector:
    SETUPS[request.param](server)
    return collector(request.param, server)


def polled(one: CloudCollector) -> list[NodeEvent]:
    one.poll()
    return one.events()


def reported(one: CloudCollector) -> list[tuple[str, str, str, str]]:
    return [(event.kind, event.severity, event.remedy, event.message) for event in polled(one)]


PLACES = {
    "aws": Place("aws", "us-east-2", "us-east-2b", "p5.48xlarge", "spot"),
    "gcp": Place("gcp", "us-central1", "us-central1-a", "a3-highgpu-8g", "spot"),
    "azure": Place("azure", "westeurope", "westeurope-2", "Standard_ND96isr_H100_v5", "spot"),
}


def test_the_place_is_requested_once(any_cloud: CloudCollector, server: Metadata) -> None:
    assert any_cloud.parts() == Parts()
    assert polled(any_cloud) == []
    assert any_cloud.reason == ""
    assert any_cloud.parts().place == PLACES[any_cloud.cloud.name]
    first = len(server.requests)
    any_cloud.poll()
    assert len(server.requests) - first == {"aws": 3, "gcp": 2, "azure": 1}[any_cloud.cloud.name]


@pytest.mark.parametrize(
    ("cloud", "path", "text", "expected"),
    [
        ("aws", f"{DATA}instance-life-cycle", "on-demand", "on_demand"),
        ("aws", f"{DATA}instance-life-cycle", "capacity-block", "reserved"),
        ("gcp", f"{GOOGLE}scheduling/preemptible", "FALSE", "on_demand"),
        ("azure", COMPUTE, '{"location": "x", "vmSize": "y", "priority": "Regular"}', "on_demand"),
        ("azure", COMPUTE, '{"location": "x", "vmSize": "y", "priority": ""}', "on_demand"),
    ],
)
def test_how_a_machine_is_paid_for(server: Metadata, cloud: str, path: str, text: str, expected: str) -> None:
    SETUPS[cloud](server)
    server.pages[path] = text
    one = collector(cloud, server)
    one.poll()
    assert one.parts().place.capacity_type == expected


def test_aws_notices(server: Metadata) -> None:
    set_aws(server)
    one = collector("aws", server)
    assert reported(one) == []
    server.pages[REBALANCE] = '{"noticeTime": "2026-03-01T12:00:00Z"}'
    message = "AWS advises since 2026-03-01T12:00:00Z to leave this machine: it is likely to be taken back"
    assert reported(one) == [("rebalance_notice", "warning", "drain", message)]
    server.pages[ACTION] = '{"action": "terminate", "time": "2026-03-01T12:05:00Z"}'
    assert reported(one) == [
        ("spot_notice", "critical", "drain", "AWS will terminate this machine at 2026-03-01T12:05:00Z")
    ]
    assert reported(one) == []
    planned = {
        "NotBefore": "21 Jan 2027 09:00:43 GMT",
        "NotAfter": "21 Jan 2027 09:17:23 GMT",
        "Code": "instance-reboot",
        "Description": "scheduled reboot",
        "EventId": "instance-event-0d59937288b749b32",
        "State": "active",
    }
    server.pages[PLANNED] = json.dumps([planned, planned | {"EventId": "instance-event-1", "State": "completed"}])
    message = "AWS plans instance-reboot of this machine, not before 21 Jan 2027 09:00:43 GMT: scheduled reboot"
    assert reported(one) == [("maintenance_notice", "warning", "drain", message)]


def test_gcp_notices(server: Metadata) -> None:
    set_gcp(server)
    one = collector("gcp", server)
    assert reported(one) == []
    server.pages[f"{GOOGLE}preempted"] = "TRUE"
    assert [kind for kind, *_ in reported(one)] == ["spot_notice"]
    for value, remedy in (("TERMINATE_ON_HOST_MAINTENANCE", "drain"), ("MIGRATE_ON_HOST_MAINTENANCE", "notify")):
        server.pages[f"{GOOGLE}maintenance-event"] = value
        assert [(kind, remedy_) for kind, _, remedy_, _ in reported(one)] == [("maintenance_notice", remedy)]
    server.pages[f"{GOOGLE}maintenance-event"] = "NONE"
    assert reported(one) == []
    server.pages[f"{GOOGLE}maintenance-event"] = "TERMINATE_ON_HOST_MAINTENANCE"
    assert len(reported(one)) == 1  # another one


def azure_event(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {
        "EventId": f"id-{kind}",
        "EventStatus": "Scheduled",
        "EventType": kind,
        "ResourceType": "VirtualMachine",
        "Resources": [name],
        "NotBefore": "Mon, 19 Sep 2026 18:29:47 GMT",
        "Description": "Host server is undergoing maintenance.",
        "EventSource": "Platform",
        "DurationInSeconds": 9,
    } | more


def test_azure_notices(server: Metadata) -> None:
    set_azure(server)
    one = collector("azure", server)
    events = [azure_event("Preempt", "GPU_7"), azure_event("Reboot", "gpu_8"), azure_event("Freeze", "gpu_7")]
    server.pages[EVENTS] = json.dumps({"DocumentIncarnation": 2, "Events": events})
    when = "of this machine, not before Mon, 19 Sep 2026 18:29:47 GMT: Host server is undergoing maintenance."
    assert reported(one) == [
        ("spot_notice", "critical", "drain", f"Azure plans Preempt {when}"),
        ("maintenance_notice", "warning", "notify", f"Azure plans Freeze {when}"),
    ]
    events[0] |= {"EventStatus": "Started", "NotBefore": ""}  # the same event
    events.append(azure_event("Terminate", "gpu_7", NotBefore="", Description=""))
    server.pages[EVENTS] = json.dumps({"DocumentIncarnation": 3, "Events": events})
    assert reported(one) == [("maintenance_notice", "critical", "drain", "Azure plans Terminate of this machine, now")]


def test_a_token_that_ran_out_is_replaced_once(server: Metadata) -> None:
    set_aws(server)
    one = collector("aws", server)
    one.poll()
    assert server.requests.count("PUT /latest/api/token") == 1
    server.expire()
    server.pages[ACTION] = '{"action": "stop", "time": "2026-03-01T12:05:00Z"}'
    assert len(polled(one)) == 1
    assert server.requests.count("PUT /latest/api/token") == 2


def test_a_server_that_takes_no_token_at_all(server: Metadata) -> None:
    set_aws(server)
    for status, reported in ((403, "switched off"), (400, "status 400"), (200, "status 401, though")):
        server.status["/latest/api/token"] = status
        server.refuses = True
        one = collector("aws", server)
        one.poll()
        assert reported in one.reason
        assert one.failed == 1
        assert one.parts() == Parts()


def test_what_is_found_before_an_error_is_reported_and_nothing_twice(server: Metadata) -> None:
    set_aws(server)
    server.pages[ACTION] = '{"action": "terminate", "time": "2026-03-01T12:05:00Z"}'
    server.status[PLANNED] = 500
    one = collector("aws", server)
    assert len(polled(one)) == 1
    assert one.reason == f"{server.url}{PLANNED}: status 500"
    server.status[ACTION] = 503
    assert polled(one) == []
    del server.status[ACTION], server.status[PLANNED]
    assert polled(one) == []
    assert one.reason == ""


def test_a_place_that_cannot_be_had_hides_no_notice(server: Metadata) -> None:
    set_gcp(server)
    server.status[f"{GOOGLE}zone"] = 503
    server.pages[f"{GOOGLE}preempted"] = "TRUE"
    one = collector("gcp", server)
    assert len(polled(one)) == 1
    assert "status 503" in one.reason
    del server.status[f"{GOOGLE}zone"]
    one.poll()
    assert one.parts().place.region == "us-central1"


def test_a_slow_service_is_given_up(any_cloud: CloudCollector, server: Metadata) -> None:
    server.pause_s = 0.03
    one = collector(any_cloud.cloud.name, server, timeout_s=0.05)
    one.poll()
    assert "0.05 s" in one.reason
    assert one.parts() == Parts()


def test_nobody_there() -> None:
    server = MetadataServer("http://127.0.0.1:1")
    for kind in CLOUDS.values():
        with pytest.raises(MetadataError, match="no answer"):
            kind(server).place()


def test_another_server_at_googles_address_is_not_believed(server: Metadata) -> None:
    set_gcp(server)
    server.answer_headers = {}
    one = collector("gcp", server)
    one.poll()
    assert "not of Google's metadata server" in one.reason


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(sorted(SETUPS)), which=st.integers(0, 9), text=st.text(max_size=40), keep=st.integers(0, 60)
)
def test_garbage_is_a_reason_and_never_more(server: Metadata, name: str, which: int, text: str, keep: int) -> None:
    SETUPS[name](server)
    server.pages |= {ACTION: '{"action": "stop", "time": "x"}', REBALANCE: '{"noticeTime": "x"}'}
    path = sorted(server.pages)[which % len(server.pages)]
    server.pages[path] = server.pages[path][:keep] + text
    one = collector(name, server)
    for event in polled(one):
        assert event.kind in ("spot_notice", "rebalance_notice", "maintenance_notice")
        assert len(event.message) <= 300
    msgspec.json.encode(one.parts().place)


def test_the_thread_reports_by_itself_and_ends(server: Metadata) -> None:
    set_gcp(server)
    one = collector("gcp", server, period_s=0.01)
    assert server.requests == []  # nobody is queried before the first tick
    assert one.read(T, 1) == []
    events: list[NodeEvent] = []
    server.pages[f"{GOOGLE}preempted"] = "TRUE"
    deadline = time.monotonic() + 10
    while not events and time.monotonic() < deadline:
        time.sleep(0.005)
        events += one.events()
    one.close()
    one.close()
    one.read(T, 1)
    assert [event.kind for event in events] == ["spot_notice"]


def test_without_a_thread_the_next_tick_tries_again(server: Metadata, monkeypatch: pytest.MonkeyPatch) -> None:
    set_gcp(server)
    server.pages[f"{GOOGLE}preempted"] = "TRUE"
    one = collector("gcp", server, period_s=0.01)

    def no_thread(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as limit:
        limit.setattr(threading.Thread, "start", no_thread)
        unread = collector("gcp", server)
        for without in (one, unread):
            with pytest.raises(RuntimeError, match="new thread"):
                without.read(T, 1)
        unread.close()
    one.read(T, 1)
    events: list[NodeEvent] = []
    deadline = time.monotonic() + 10
    while not events and time.monotonic() < deadline:
        time.sleep(0.005)
        events += one.events()
    one.close()
    assert [event.kind for event in events] == ["spot_notice"]


def test_the_configuration_outranks_the_cloud() -> None:
    identity = Identity("n1", "b1", 1)
    parts = [Parts(), Parts(place=PLACES["gcp"])]
    found = build_inventory(AgentParameters(), identity, parts, epoch=1, time_ns=T)
    assert (found.provider, found.region, found.availability_zone) == ("gcp", "us-central1", "us-central1-a")
    assert (found.instance_type, found.capacity_type) == ("a3-highgpu-8g", "spot")
    named = AgentParameters(
        provider="us", region="r", instance_type="t", capacity_type="reserved", rack="r7", leaf="s3"
    )
    found = build_inventory(named, identity, parts, epoch=1, time_ns=T)
    assert (found.provider, found.region, found.instance_type, found.capacity_type) == ("us", "r", "t", "reserved")
    assert (found.rack, found.leaf) == ("r7", "s3")
    assert build_inventory(AgentParameters(), identity, [], epoch=1, time_ns=T).capacity_type == "owned"


DMI: list[tuple[dict[str, str], str]] = [
    ({"sys_vendor": "Amazon EC2"}, "aws"),
    ({"sys_vendor": "Xen", "bios_version": "4.11.amazon"}, "aws"),
    ({"sys_vendor": "Google"}, "gcp"),
    ({"sys_vendor": "Microsoft Corporation", "chassis_asset_tag": AZURE_TAG}, "azure"),
    ({"sys_vendor": "Microsoft Corporation", "chassis_asset_tag": "5550-1234"}, ""),
    ({"sys_vendor": "Supermicro", "bios_version": "1.4"}, ""),
    ({}, ""),
]


@pytest.mark.parametrize(("files", "provider"), DMI)
def test_the_firmware_reports_the_cloud(tmp_path: Path, files: dict[str, str], provider: str) -> None:
    dmi = tmp_path / "sys/class/dmi/id"
    dmi.mkdir(parents=True)
    for name, text in files.items():
        (dmi / name).write_text(f"{text}\n")
    assert provider_of(tmp_path) == provider
    found = open_cloud("", "n1", tmp_path)
    if provider:
        assert isinstance(found, CloudCollector)
        assert found.cloud.name == provider
        found.close()
    else:
        assert isinstance(found, Absent)
        assert found.remedy


def test_it_can_be_switched_off() -> None:
    assert isinstance(open_cloud("none", "n1"), Absent)


def test_the_doctor_reports_what_the_cloud_says(server: Metadata, tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    set_aws(server)
    cloud = CloudParameters(address=server.url)
    config = Config(agent=AgentParameters(root=str(tmp_path), provider="aws", cloud=cloud, disabled=("host", "nvml")))

    def finding() -> Finding:
        return next(finding for finding in explain(config, wait=lambda seconds: None) if finding.name == "cloud")

    assert finding() == Finding("cloud", True, "aws: p5.48xlarge in us-east-2b, spot; notices are requested")
    server.refuses = True
    assert "status 401" in finding().detail
    assert finding().remedy
