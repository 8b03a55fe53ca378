"""What training jobs say: lines over real sockets, logs that rotate, and what is made of it."""

import errno
import math
import os
import socket
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from flyball_collectors.workload.training.follower import Follower, compile_pattern
from flyball_collectors.workload.training.job import Job
from flyball_collectors.workload.training.lines import Line, parse_line
from flyball_collectors.workload.training.listen import LineSocket
from flyball_contracts.errors import ConfigError

PATTERN = compile_pattern(r"step[ =](?P<step>\d+).*?loss[ =](?P<loss>[\d.naninf]+)", "here")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("training,workload=ft step=12", Line("ft", "", {"step": 12})),
        (
            'training,replica=0,host=n,workload=ft step=12i,loss=2.5e-1,step_time_s=.5,note="a, b=c",fp16=t 17000000',
            Line("ft", "0", {"step": 12, "loss": 0.25, "step_time_s": 0.5}),
        ),
        (r"training,workload=a\ b\,c\=d\\ progress=0.5  ", Line("a b,c=d\\", "", {"progress": 0.5})),
        ("training,workload=ft tokens_per_s=81234u,loss=-1.", Line("ft", "", {"tokens_per_s": 81234, "loss": -1})),
        ("training step=1", None),
        ("training,workload=ft", None),
        ("training,workload=ft other=1", None),
        ("training,workload=ft step=nan", None),
        ("training,workload=ft step=1,", None),
        ("cpu,workload=ft step=1", None),
        (f"training,workload={'x' * 254} step=1", None),
        ("", None),
    ],
)
def test_the_line_protocol(text: str, expected: Line | None) -> None:
    assert parse_line(text) == expected


@given(st.text())
@settings(max_examples=200, deadline=None)
def test_any_line_is_read_or_refused(text: str) -> None:
    parse_line(text)
    parse_line("training,workload=" + text)
    parse_line("training,workload=w " + text)


def test_datagrams_over_udp() -> None:
    listener = LineSocket("udp://127.0.0.1:0")
    host, _, port = listener.address.removeprefix("udp://").rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"training,workload=a step=1\ntraining,workload=b step=2\n\n# note\nbad\n", (host, int(port)))
        sender.sendto(b"\xff\xfe", (host, int(port)))
    lines = listener.take()  # loopback delivers before sendto returns
    assert [(line.workload, line.fields) for line in lines] == [("a", {"step": 1.0}), ("b", {"step": 2.0})]
    assert listener.refused == 2
    assert listener.take() == []
    listener.close()


def test_datagrams_over_a_unix_socket_that_is_handed_over(tmp_path: Path) -> None:
    path = tmp_path / "t.sock"

    def send(text: str) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(text.encode(), str(path))

    old = LineSocket(f"unix://{path}")
    assert old.take() == []
    refused = LineSocket(f"unix://{path}")  # a configuration that another part of the agent then refuses
    refused.close()
    send("training,workload=a step=1")
    assert len(old.take()) == 1
    new = LineSocket(f"unix://{path}")
    assert new.take() == []
    old.close()
    send("training,workload=a step=2")
    assert len(new.take()) == 1
    once = LineSocket(f"unix://{path}")  # one that looks around beside an agent that runs
    assert once.take() == []
    once.close()
    assert new.take() == []
    send("training,workload=a step=3")
    assert len(new.take()) == 1
    new.close()
    assert list(tmp_path.iterdir()) == []


def test_a_udp_port_is_handed_over() -> None:
    old = LineSocket("udp://127.0.0.1:0")
    new = LineSocket(old.address)
    host, _, port = new.address.removeprefix("udp://").rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"training,workload=a step=1", (host, int(port)))
        assert len(new.take()) == 1
        new.close()  # the configuration was refused
        sender.sendto(b"training,workload=a step=2", (host, int(port)))
    assert len(old.take()) == 1
    old.close()


def test_a_flood_is_taken_in_parts() -> None:
    listener = LineSocket("udp://127.0.0.1:0")
    host, _, port = listener.address.removeprefix("udp://").rpartition(":")
    many = b"training,workload=a step=1\n" * 2000
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(6):
            sender.sendto(many, (host, int(port)))
    taken = [len(listener.take()), len(listener.take())]
    assert taken[0] < 12_000
    assert taken[1] > 0
    listener.close()


@pytest.mark.parametrize("address", ["udp://127.0.0.1:99999", "unix:///nowhere/at/all", "udp://no.such.host.invalid:1"])
def test_an_address_that_cannot_be_had(address: str) -> None:
    with pytest.raises(ConfigError, match=r"^agent\.workloads\.listen: .*; name one that can be had"):
        LineSocket(address)


def test_a_file_is_not_taken_for_a_socket(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    with pytest.raises(ConfigError, match="there is something else"):
        LineSocket(f"unix://{tmp_path / 'precious'}")
    assert (tmp_path / "precious").read_text() == "kept"


def test_a_job_is_what_it_reported_last() -> None:
    job = Job(silent_s=60.0)
    assert job.silent(0.0)
    assert job.take(0.0) is None
    job.update({"step": 100, "steps": 1000, "loss": 3.0, "tokens_per_s": 500.0, "other": 1.0}, 10.0)
    first = job.take(10.0)
    assert first is not None
    assert (first.throughput, first.progress, first.loss) == (500.0, 0.1, 3.0)
    assert math.isnan(first.step_time_s)
    assert math.isnan(first.steps_done)
    job.update({"step": 110, "loss": math.nan}, 15.0)
    job.update({"step": 110}, 18.0)
    second = job.take(20.0)
    assert second is not None
    assert (second.step_time_s, second.steps_done, second.progress, second.loss) == (0.5, 10, 0.11, 3.0)
    third = job.take(21.0)
    assert third is not None
    assert third.steps_done == 0
    assert job.take(79.0) is None


def test_a_job_that_goes_back_to_a_checkpoint() -> None:
    job = Job(silent_s=60.0, steps=200)
    job.update({"step": 150}, 0.0)
    job.take(0.0)
    job.update({"step": 100}, 1.0)
    job.update({"step": 104, "step_time_s": 0.2}, 2.0)
    reported = job.take(2.0)
    assert reported is not None
    assert (reported.steps_done, reported.step_time_s, reported.progress, job.restarts) == (4, 0.2, 0.52, 1)


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_a_log_is_followed_through_rotation_and_truncation(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    follower = Follower(log, PATTERN)
    assert follower.take() == {}
    log.write_text("hello\nstep 1 loss 3.5\nstep=2 a loss=3.25\nstep 3 lo")
    assert follower.take() == {"step": 2, "loss": 3.25}
    append(log, "ss 3.0\n")
    assert follower.take() == {"step": 3, "loss": 3.0}
    append(log, "step 4 loss 2.5\n")
    log.rename(tmp_path / "train.log.1")
    assert follower.take() == {"step": 4, "loss": 2.5}
    append(tmp_path / "train.log.1", "step 5 loss 2.25\n")
    log.write_text("step 6 loss 2.0\n")
    assert follower.take() == {"step": 6, "loss": 2.0}
    with log.open("r+") as file:
        file.truncate()
    append(log, "step 7 loss 1\n")
    assert follower.take() == {"step": 7, "loss": 1.0}
    log.unlink()
    assert follower.take() == {}
    log.write_text("step 8 loss nan\n")
    assert follower.take()["step"] == 8
    follower.close()


def test_a_log_whose_handle_is_stale_is_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "train.log"
    append(log, "step 1 loss 2.0\n")
    follower = Follower(log, PATTERN)
    assert follower.take() == {"step": 1, "loss": 2}
    stale = {int(fd.name) for fd in Path("/proc/self/fd").iterdir() if os.path.realpath(fd) == str(log.resolve())}
    assert len(stale) == 1
    fstat, pread, close = os.fstat, os.pread, os.close

    def usable(file: int) -> int:
        if file in stale:
            raise OSError(errno.ESTALE, "Stale file handle")
        return file

    def closed(file: int) -> None:
        stale.discard(file)  # its number may come again
        close(file)

    def told(file: int) -> os.stat_result:
        return fstat(usable(file))

    def read(file: int, most: int, at: int) -> bytes:
        return pread(usable(file), most, at)

    append(log, "step 2 loss 1.5\n")
    monkeypatch.setattr(os, "fstat", told)
    monkeypatch.setattr(os, "pread", read)
    monkeypatch.setattr(os, "close", closed)
    assert follower.take() == {"step": 2, "loss": 1.5}
    follower.close()


def test_a_long_log_is_begun_near_its_end_and_read_in_parts(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("".join(f"step {i} loss 1\n" for i in range(10_000)))
    follower = Follower(log, PATTERN, most_bytes=1000)
    assert follower.take()["step"] == 9999
    append(log, "".join(f"step {i} loss 1\n" for i in range(10_000, 10_200)))  # 3400 bytes
    steps = [follower.take().get("step") for _ in range(5)]
    assert steps[-2:] == [10_199, None]
    assert follower.skipped == 0
    append(log, "".join(f"step {i} loss 1\n" for i in range(20_000, 30_000)))
    assert follower.take()["step"] == 29_999
    assert follower.skipped == 180_000 - 1000
    append(log, "x" * 40_000 + " step 1 loss 1\nstep 30000 loss 1\n")
    assert [follower.take().get("step") for _ in range(60)].count(1) == 0
    follower.close()


def test_what_is_no_plain_file_is_left_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path, tmp_path / "pipe"):
        follower = Follower(place, PATTERN)
        assert follower.take() == {}
        follower.close()


@pytest.mark.parametrize(
    ("pattern", "expected"), [("(", "no regular expression"), ("a", "name at least one"), ("(?P<x>a)", r"\['x'\]")]
)
def test_a_pattern_that_cannot_work(pattern: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=rf"^agent\.here: .*{expected}"):
        compile_pattern(pattern, "agent.here")
