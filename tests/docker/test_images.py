"""The agent's image is built from the Dockerfile as it is, and runs as it is shipped: frames come to the broker.

No registry of images is reached where these tests run, so the base is Debian's Python from `infra/dockertest/fetch`.
"""

import os
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Consumer, TopicPartition
from tests.brokers.embedded import EmbeddedBroker
from tests.conftest import ROOT
from tests.docker.engine import DockerEngine
from tests.faults.testbed import wait_until
from tests.nvml_stub.stub import STATE_VARIABLE, NvmlStub, compile_stub

from flyball_contracts.frame import decode_frame
from flyball_contracts.kafka import consumer_settings
from flyball_contracts.metrics import GPU
from flyball_contracts.topics import EVENTS, INVENTORY, TELEMETRY

pytestmark = pytest.mark.integration
BASE, IMAGE = "flyball-base:1", "flyball-agent:0.1.0"
NODE, GPUS, FRAMES = "gpu-1", 2, 5
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
RUN_S = 30.0
# As infra/kubernetes/agent.yaml runs it, less what is the node's.
HARDENED = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges:true", "--tmpfs", "/tmp")


@pytest.fixture(scope="module")
def image(engine: DockerEngine) -> str:
    """The agent's image; what it installs comes from the index that this machine uses."""
    base = engine.programs / "base.tar"
    assert base.is_file(), "run infra/dockertest/fetch"
    found = (
        f"ENV PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin SSL_CERT_FILE={CERTIFICATES} PIP_CERT={CERTIFICATES}"
    )
    docker(engine, "import", "--change", found, str(base), BASE)
    docker(
        engine, "build", "--network", "host", "--build-arg", f"PYTHON={BASE}", "--target", "agent", "-t", IMAGE,
        "-f", str(ROOT / "infra/docker/Dockerfile"), str(ROOT),
    )  # fmt: skip
    return IMAGE


def docker(engine: DockerEngine, *arguments: str) -> str:
    """Run Docker's command line to its end; what it prints, and a container's errors after that."""
    environment = {**os.environ, "DOCKER_HOST": f"unix://{engine.socket}", "DOCKER_BUILDKIT": "1"}
    done = subprocess.run(
        [engine.client, *arguments], env=environment, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + (done.stderr if arguments[0] == "logs" else "")


def inside(engine: DockerEngine, image: str, script: str) -> list[str]:
    """Output of a shell in a container without a network."""
    return docker(engine, "run", "--rm", "--network", "none", *HARDENED, image, "sh", "-c", script).splitlines()


@contextmanager
def agent(engine: DockerEngine, image: str, folder: Path) -> Generator[str]:
    """A container with the stand-in's GPUs that runs the DaemonSet's command; its id."""
    (daemon,) = [
        one
        for one in yaml.safe_load_all((ROOT / "infra/kubernetes/agent.yaml").read_text())
        if one and one["kind"] == "DaemonSet"
    ]
    (container,) = daemon["spec"]["template"]["spec"]["containers"]
    words = [str(word) for word in [*container.get("command", []), *container["args"]]]
    started = docker(
        engine, "run", "--detach", "--network", "host", *HARDENED, "--volume", f"{folder}:/etc/flyball",
        "--env", "LD_LIBRARY_PATH=/etc/flyball", "--env", f"{STATE_VARIABLE}=/etc/flyball/gpus", image, *words,
    )  # fmt: skip
    try:
        yield started.strip()
    finally:
        print(docker(engine, "logs", started.strip()))  # shown where the test fails
        docker(engine, "rm", "--force", started.strip())


@pytest.mark.timeout(900)
def test_it_is_unprivileged_and_installs_nothing_more(engine: DockerEngine, image: str) -> None:
    who, version, *rest = inside(engine, image, "id -u; flyball --version; command -v pip uv cc; exit 0")
    assert (who, rest) == ("10001", [])
    assert version.startswith("flyball, version ")
    assert inside(engine, image, "touch /opt/flyball/x /var/lib/flyball/x 2>/dev/null || echo read only") == [
        "read only"
    ]
    compiled = "find /opt/flyball -path '*flyball_collectors*' -name '*.opt-2.pyc' | head -n 1 | wc -l"
    assert inside(engine, image, compiled) == ["1"], "what runs is compiled without docstrings"


@pytest.mark.timeout(900)
def test_it_sends_the_frames_of_its_gpus(
    engine: DockerEngine, image: str, embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path
) -> None:
    broker = embedded_broker({TELEMETRY.name: 1, EVENTS.name: 1, INVENTORY.name: 1})
    assert compile_stub(tmp_path) is not None, "a C compiler is needed"
    NvmlStub(tmp_path / "gpus", GPUS)
    settings = {
        "kafka": {"bootstrap": broker.bootstrap},
        "agent": {"node": NODE, "provider": "none", "disabled": ["kmsg"], "state_dir": "/tmp/agent"},
    }
    (tmp_path / "flyball.yaml").write_text(yaml.safe_dump(settings))
    for path in (tmp_path, *tmp_path.iterdir()):
        path.chmod(0o777)  # the stand-in notes what it is called for, and the container's user is another one
    reader = Consumer(consumer_settings(broker.bootstrap, group="test", client_id="test"))
    reader.assign([TopicPartition(TELEMETRY.name, 0, 0)])
    rows: list[tuple[str, int]] = []

    def enough() -> bool:
        frames = [decode_frame(one.value() or b"") for one in reader.consume(100, 0.5)]
        rows.extend((frame.node, frame.rows) for frame in frames if frame.schema == GPU.schema)
        return len(rows) >= FRAMES

    try:
        with agent(engine, image, tmp_path) as container:
            wait_until(enough, "frames", RUN_S)
            docker(engine, "stop", "--time", "30", container)
            status = docker(engine, "inspect", "--format", "{{.State.ExitCode}}", container)
    finally:
        reader.close()
    assert set(rows) == {(NODE, GPUS)}
    assert status.strip() == "0", "it ends as it is told to"
