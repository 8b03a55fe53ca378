"""What all tests share: brokers, servers, the data folder, and the rule that CI skips nothing.

`FLYBALL_NO_SKIP=1` turns each skip into a failure, so that CI cannot pass by testing nothing.
"""

import gc
import importlib
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from tests import order
from tests.brokers import kafka
from tests.brokers.base import Broker
from tests.brokers.embedded import EmbeddedBroker
from tests.brokers.kafka import RealKafka
from tests.brokers.server import LOOPBACK, Server, free_ports

ROOT = Path(__file__).resolve().parent.parent
NO_SKIP_VARIABLE = "FLYBALL_NO_SKIP"
DATA_VARIABLE = "FLYBALL_DATA"
VICTORIA_VARIABLE = "FLYBALL_VICTORIA"
DEFAULT_DATA = ROOT.parent / "shared" / "data"
DEFAULT_VICTORIA = ROOT / ".cache" / "victoria" / "usr" / "bin" / "victoria-metrics"
READY_S = 90.0
LARGE = (
    ("jax",),
    ("scipy.optimize", "polars"),
    ("matplotlib.figure", "numba"),
    ("fastapi", "influxdb_client"),
)
"""What takes longest to compile, by who begins with it."""
FUZZ_VARIABLE = "FLYBALL_FUZZ"
# What is tried from other languages needs their tools: infra/subscribers/fetch.
collect_ignore = [] if os.environ.get("FLYBALL_SUBSCRIBERS") else ["subscribers/test_subscribers.py"]
# .ci/run says so where a machine lets nobody mount a small disk.
collect_ignore_glob = ["*/test_full_disk.py"] if os.environ.get("FLYBALL_NO_SMALL_DISK") == "1" else []
FUZZ_SEED_VARIABLE = "FLYBALL_FUZZ_SEED"
FUZZ_TIME_VARIABLE = "FLYBALL_FUZZ_TIME"
"""Seconds from the end of the collection, which takes minutes on a busy machine; then no more tests begin."""
FUZZ_TEST_S = 900
_fuzz_ends_s = float("inf")
# No example has a deadline: time is never judged. The tests try the same examples on every run, so half of Hypothesis's
# usual number; `make fuzz` explores, and keeps what it finds in .hypothesis, where the next `make fuzz` tries it first.
settings.register_profile("same", max_examples=50, deadline=None, derandomize=True, database=None)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("explore" if os.environ.get(FUZZ_VARIABLE) == "1" else "same")


def _same_whatever_is_loaded() -> None:
    """Keep Hypothesis from drawing constants of our modules: which are loaded depends on the tests that ran before."""
    inside: Any = providers
    none = inside._local_constants
    inside._get_local_constants = lambda: none


if os.environ.get(FUZZ_VARIABLE) != "1":
    _same_whatever_is_loaded()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--data",
        type=Path,
        default=os.environ.get(DATA_VARIABLE) or DEFAULT_DATA,
        help=f"folder of the public data sets (default: ${DATA_VARIABLE}, else ../shared/data)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """What one process of a run compiles, bytecode and models, the others load: the tests start hundreds.

    Nothing is kept from run to run, so that each one compiles everything once. The processes that share the tests
    import the same at the same time, so each begins elsewhere and finds the rest compiled.

    SIGTERM ends a run as SIGINT does, so that fixtures stop the servers that they have started.
    """
    gc.disable()  # until all tests are collected: what is imported has no garbage
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    if hasattr(config, "workerinput"):  # the process that started this one has set all else
        begun = cast(Any, config).workerinput
        worker, workers = int(begun["workerid"].removeprefix("gw")), int(begun["workercount"])
        for name in LARGE[worker % len(LARGE)]:
            importlib.import_module(name)
        if config.args == config.getini("testpaths"):
            for path in sorted((ROOT / "tests").rglob("test_*.py"))[worker::workers]:
                with suppress(Exception, pytest.skip.Exception):  # the collection imports it again, and reports it
                    importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        return
    folder = tempfile.TemporaryDirectory(prefix="flyball-tests-", ignore_cleanup_errors=True)
    config.add_cleanup(folder.cleanup)
    if sys.dont_write_bytecode:  # none beside the sources, as the environment requests
        sys.dont_write_bytecode = False
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = f"{folder.name}/python"
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", f"{folder.name}/xla")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    # As in a worker: to wake another thread takes longer than most steps, the more so where processes share the cores.
    os.environ.setdefault("JAX_CPU_ENABLE_ASYNC_DISPATCH", "false")
    for threads in ("PJRT_NPROC", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "POLARS_MAX_THREADS"):
        os.environ.setdefault(threads, "1")
    # In one piece: to compile the pieces of a program in threads takes more work, and the cores are busy anyway.
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_parallel_codegen_split_count=1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that take longest first, so that no process is left alone with them at the end; see `order`."""
    if FUZZ_SEED_VARIABLE in os.environ:  # whatever there is time for; the seed is the same in all processes of a run
        random.Random(os.environ[FUZZ_SEED_VARIABLE]).shuffle(items)
        for item in items:  # the limits of some tests are longer than a run that explores
            item.add_marker(pytest.mark.timeout(FUZZ_TEST_S), append=False)
        return
    items.sort(key=lambda item: order.rank(item.path))


def pytest_collection_finish() -> None:
    """What was imported stays: no collection of garbage need look at it again."""
    gc.collect()
    gc.freeze()
    gc.enable()
    global _fuzz_ends_s
    _fuzz_ends_s = time.monotonic() + float(os.environ.get(FUZZ_TIME_VARIABLE, "inf"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """The process that only hands out tests collects none."""
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """Begin no more tests once the time of `make fuzz` is up."""
    del item
    return True if time.monotonic() >= _fuzz_ends_s else None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if not hasattr(report, "wasxfail"):  # an expected failure also reports itself as skipped
        _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _refuse_skip(report)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what platforms were seen to do in this run, beside what they promise."""
    seen = sys.modules.get("tests.actuators.rows")
    if seen and seen.SEEN:
        terminalreporter.section("platforms, as observed")
        for line in seen.table(seen.merged(seen.SEEN)):
            terminalreporter.write_line(line)


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and os.environ.get(NO_SKIP_VARIABLE) == "1":
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{NO_SKIP_VARIABLE}=1 allows no skip. {why}"


@pytest.fixture(scope="session")
def data_dir(request: pytest.FixtureRequest) -> Path:
    """The folder of the public data sets; see `--data`."""
    folder = Path(cast(str, request.config.getoption("--data")))
    if not folder.is_dir():
        pytest.skip(f"no data folder {folder}; name one with --data PATH or {DATA_VARIABLE}")
    return folder


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Make a name of our own, for a topic or a group: `unique("frames")` -> `frames-1f0c9a2b`."""
    return lambda stem: f"{stem}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def embedded_broker() -> Iterator[Callable[..., EmbeddedBroker]]:
    """Start embedded brokers; takes what `EmbeddedBroker` takes; they end with the test."""
    with ExitStack() as stack:

        def start(*args: object, **kwargs: object) -> EmbeddedBroker:
            make = cast(Callable[..., EmbeddedBroker], EmbeddedBroker)
            return stack.enter_context(make(*args, **kwargs))

        yield start


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    """The jars that `infra/kafka/fetch` gets, wherever pytest was started."""
    jars = kafka.jars_folder() if os.environ.get(kafka.JARS_VARIABLE) else ROOT / kafka.DEFAULT_JARS
    reason = kafka.missing(jars)
    if reason is not None:
        pytest.skip(reason)
    return jars


@pytest.fixture(scope="session")
def real_kafka(kafka_jars: Path) -> Iterator[RealKafka]:
    """One Apache Kafka per run; use topics and groups named by `unique`."""
    with RealKafka(jars=kafka_jars) as broker:
        yield broker


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.integration)])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A running broker without topics: the embedded one, then Apache Kafka."""
    if request.param == "kafka":
        yield cast(Broker, request.getfixturevalue("real_kafka"))
    else:
        with EmbeddedBroker({}) as embedded:
            yield embedded


@pytest.fixture(scope="session")
def victoria(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The base URL of a VictoriaMetrics, which takes InfluxDB's `/api/v2/write`."""
    binary = os.environ.get(VICTORIA_VARIABLE) or shutil.which("victoria-metrics") or DEFAULT_VICTORIA
    if not Path(binary).is_file():
        pytest.skip(f"no {binary}; run infra/victoria/fetch, or set {VICTORIA_VARIABLE}")
    folder = tmp_path_factory.mktemp("victoria")
    (port,) = free_ports(1)
    url = f"http://{LOOPBACK}:{port}"
    server = Server(
        "VictoriaMetrics",
        [
            str(binary),
            f"-httpListenAddr={LOOPBACK}:{port}",
            f"-storageDataPath={folder / 'data'}",
            "-retentionPeriod=100y",  # the default drops recorded points older than a month
            "-memory.allowedBytes=256MB",
        ],
        folder / "victoria.log",
    )
    try:
        server.wait_until(lambda: _answers(f"{url}/health"), READY_S)
        yield url
    finally:
        server.stop()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1.0) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
