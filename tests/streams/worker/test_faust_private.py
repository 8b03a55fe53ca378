"""One module uses what is private in Faust and aiokafka, of the tested versions; Faust runs on the embedded broker."""

import ast
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.brokers.embedded import EmbeddedBroker
from tests.brokers.server import Server, free_ports

from flyball_streams.worker import faust_private
from flyball_streams.worker.faust_private import PRIVATE, TESTED, PrivateConsumer, untested_versions

ROOT = Path(__file__).parents[3]
MODULE = Path(faust_private.__file__)
CLIENTS = ("faust", "mode", "aiokafka", "confluent_kafka")
PRODUCT = sorted(path for path in ROOT.glob("*/flyball_*/**/*.py") if path != MODULE)
NAMES_CLIENT = re.compile(rf"\b({'|'.join(CLIENTS)})\b")
"""A module that imports one of them has its name somewhere; only such a module is parsed."""
PRIVATE_NAME = re.compile("_(?!_)")
OVERRIDDEN = {"_drain_messages"}
EXPORTED = {f"confluent_kafka.admin.{name}" for name in ("_acl", "_listoffsets", "_metadata")}
"""Their names are those of ``confluent_kafka.admin``, but type checkers find them only here."""
DOCUMENTED = {"_replace", "_exit"}
"""Of named tuples and ``os``; the names of Kafka's errors are in capitals."""
PARTITIONS = 6
READY_S = 90.0
WORKER = """
import asyncio
import sys
import faust
from aiokafka.consumer.group_coordinator import CoordinatorGroupRebalance as Rebalance
from flyball_streams.worker.faust_private import run_on_embedded_broker

follow_join = Rebalance._on_join_follower

async def follow_late(rebalance):
    await asyncio.sleep(0.1)  # a slow follower, each time and not by chance
    return await follow_join(rebalance)

Rebalance._on_join_follower = follow_late
run_on_embedded_broker(fetch_wait_ms=50, leader_delay_s=0.3)
app = faust.App(
    "flyball-test", broker=f"kafka://{sys.argv.pop(1)}", store="memory://", datadir=sys.argv.pop(1),
    topic_allow_declare=False, topic_disable_leader=True,
    broker_session_timeout=3.0, broker_heartbeat_interval=0.5, broker_rebalance_timeout=3.0,
    consumer_auto_offset_reset="earliest",
)
ticks = app.topic("ticks", key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw")

@app.agent(ticks)
async def note(stream):
    fetcher = app.consumer._thread._consumer._fetcher
    sys.__stdout__.write(f"fetch wait {fetcher._fetch_max_wait_ms} ms\\n")
    async for event in stream.events():
        message = event.message
        sys.__stdout__.write(f"partition {message.partition} value {event.value.decode()}.\\n")
        sys.__stdout__.flush()

if __name__ == "__main__":
    app.main()
"""


def test_installed_versions_are_the_tested_ones() -> None:
    assert not untested_versions(), (
        f"installed are {untested_versions()}, but the worker overrides private parts of {TESTED}: "
        "run tests/streams/worker on the new versions, then change TESTED in worker/faust_private.py"
    )


@pytest.mark.parametrize("name", [f"{owner}.{name}" for owner, names in PRIVATE.items() for name in names])
def test_a_private_name_is_there(name: str) -> None:
    owner, _, private = name.rpartition(".")
    kinds = [kind for kind in pkgutil.resolve_name(owner).__mro__ if kind is not object]
    assert any(re.search(rf"(def |self\.|^    ){private}\b", inspect.getsource(kind), re.MULTILINE) for kind in kinds)


def test_all_private_names_are_listed() -> None:
    used, own = private_names(ast.parse(MODULE.read_text()))
    assert used - own | OVERRIDDEN == {name for names in PRIVATE.values() for name in names}
    assert own >= OVERRIDDEN


def test_public_names_of_ours_are_not_taken() -> None:
    ours = [name for name, made in vars(PrivateConsumer).items() if inspect.isfunction(made) and name[0] != "_"]
    assert len(ours) > 5
    assert [name for kind in PrivateConsumer.__mro__[1:] for name in ours if name in vars(kind)] == []


def test_no_other_module_uses_private_names() -> None:
    found = [path for path in PRODUCT if strange_names(path.read_text())]
    assert found == []
    assert sum("faust" in path.read_text() for path in PRODUCT) > 3


@pytest.mark.parametrize(
    "source",
    [
        "import faust\nfaust.App._x = 1\n",
        "from confluent_kafka.admin._client import Client\n",
        "import mode\nclass Ours(mode.Service):\n    def __init__(self):\n        self._y = self._stopped\n",
    ],
)
def test_a_private_name_is_found(source: str) -> None:
    assert strange_names(source)


def strange_names(source: str) -> set[str]:
    """Private names in a module that imports one of the clients, without those that it makes itself."""
    if not NAMES_CLIENT.search(source):
        return set()
    tree = ast.parse(source)
    modules = {module for module in imports(tree) if module.split(".")[0] in CLIENTS}
    if not modules:
        return set()
    used, own = private_names(tree)
    private = {module for module in modules if "._" in module}
    return (private - EXPORTED) | {name for name in used - own - DOCUMENTED if not name.isupper()}


def imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def private_names(tree: ast.Module) -> tuple[set[str], set[str]]:
    """The private attributes that a module uses, and those that it makes on ``self`` or in its classes."""
    used, own = set[str](), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            own.add(node.name)
        elif isinstance(node, ast.Attribute):
            (own if isinstance(node.ctx, ast.Store) and of_self(node) else used).add(node.attr)
    return set(filter(PRIVATE_NAME.match, used)), set(filter(PRIVATE_NAME.match, own))


def of_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self"


def test_two_workers_share_a_topic(embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path) -> None:
    # The second to join is a follower: without the second patch it hangs for ever.
    started = embedded_broker({"ticks": PARTITIONS})
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    logs = [tmp_path / "first.log", tmp_path / "second.log"]
    producer = Producer({"bootstrap.servers": started.bootstrap, "log_level": 2})
    sent = 0

    def all_partitions_noted_by(*readers: Path) -> bool:
        """Tick every partition once more; whether each reader has some, and together they have all."""
        nonlocal sent
        for partition in range(PARTITIONS):
            producer.produce("ticks", str(sent).encode(), partition=partition)
        sent += 1
        assert producer.flush(READY_S) == 0
        noted = [_partitions(log, since=joined) for log in readers]
        return all(noted) and set[str]().union(*noted) == {str(p) for p in range(PARTITIONS)}

    with ExitStack() as stack:
        for count, log in enumerate(logs, start=1):
            joined = sent
            command = [sys.executable, str(script), started.bootstrap, str(tmp_path / log.stem)]
            port = free_ports(1)[0]
            server = Server("Faust", [*command, "worker", "--without-web", f"--web-port={port}", "-l", "warn"], log)
            stack.callback(server.stop)
            server.wait_until(partial(all_partitions_noted_by, *logs[:count]), READY_S)
            assert "fetch wait 50 ms" in log.read_text()


def _partitions(log: Path, since: int) -> set[str]:
    """The partitions of which a worker has noted a value not older than `since`."""
    whole = re.findall(r"^partition (\d+) value (\d+)\.$", log.read_text(), re.MULTILINE)
    return {partition for partition, value in whole if int(value) >= since}
