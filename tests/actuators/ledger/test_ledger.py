import resource
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tests.actuators.samples import CELL, NOW, S, scale

from flyball_actuators.guard import Grant
from flyball_actuators.ledger import Ledger, NotWrittenError, file as module
from flyball_contracts.errors import ConfigError
from flyball_contracts.records import Outcome
from flyball_contracts.records.commands.outcomes import OutcomeStatus


def grant(at_ns: int = NOW) -> Grant:
    return Grant(cell=CELL, target="chat", subject="chat", decided_ns=NOW, at_ns=at_ns, taken=1)


def outcome(decision: str, status: OutcomeStatus = "done", time_ns: int = NOW) -> Outcome:
    return Outcome(
        id=f"o-{decision}", decision=decision, type="Scale", target="chat", cell=CELL, workload="chat",
        time_ns=time_ns, status=status, mode="live", driver="test",
    )  # fmt: skip


def fill(path: Path) -> None:
    """One decision at each step."""
    with Ledger(path) as ledger:
        for id_ in ("granted", "sent", "done", "failed"):
            ledger.grant(scale(id_), grant())
        for id_ in ("sent", "done", "failed"):
            ledger.send(scale(id_))
        ledger.finish(scale("done"), outcome("done"))
        ledger.finish(scale("failed"), outcome("failed", "failed"))
        ledger.finish(scale("refused"), outcome("refused", "refused"))


STEPS = {"granted": "granted", "sent": "sent", "done": "done", "failed": "failed", "refused": "refused"}


def steps(ledger: Ledger) -> dict[str, str]:
    return {id_: entry.step for id_ in STEPS if (entry := ledger.get(id_)) is not None}


def test_it_remembers_every_step_over_a_restart(tmp_path: Path) -> None:
    fill(tmp_path / "ledger")
    with Ledger(tmp_path / "ledger") as again:
        assert steps(again) == STEPS
        entry = again.get("done")
        assert entry is not None
        assert entry.outcome == outcome("done")
        assert list(again.grants()) == [grant()] * 3, "what was not sent, or was refused, counts for no limit"


def test_sent_and_the_final_outcome_are_on_disk_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, synced = tmp_path / "ledger", list[bytes]()

    def sync(_: int) -> None:
        synced.append(path.read_bytes())

    with Ledger(path) as ledger:
        monkeypatch.setattr("os.fsync", sync)
        ledger.grant(scale("d"), grant())
        ledger.send(scale("d"))
        assert [b'"step":"sent"' in seen for seen in synced] == [True]
        ledger.finish(scale("d"), outcome("d"))
        assert [b'"step":"done"' in seen for seen in synced] == [False, True]


def test_what_was_withdrawn_was_never_sent(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    fill(path)
    with Ledger(path) as ledger:
        ledger.withdraw(scale("sent"))
    with Ledger(path) as again:
        assert steps(again) == {**STEPS, "sent": "granted"}
        assert len(list(again.grants())) == 2


def test_it_works_in_memory() -> None:
    ledger = Ledger()
    ledger.grant(scale("d"), grant())
    ledger.send(scale("d"))
    ledger.finish(scale("d"), outcome("d"))
    entry = ledger.get("d")
    assert entry is not None
    assert entry.outcome == outcome("d")


def test_accepted_is_no_final_outcome() -> None:
    with pytest.raises(ValueError, match="not the end"):
        Ledger().finish(scale("d"), outcome("d", "accepted"))


def test_every_torn_tail_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    fill(path)
    whole = path.read_bytes()
    first, *lines = whole.splitlines(keepends=True)
    for cut in range(0, len(whole) + 1, 7):
        path.write_bytes(whole[:cut])
        complete = sum(len(first + b"".join(lines[: i + 1])) <= cut for i in range(len(lines)))
        with Ledger(path) as again:
            last = {e.id: e.step for e in map(_entry, lines[:complete])}
            assert steps(again) == last
        with Ledger(path) as third:
            assert steps(third) == last, "what was cut off must be gone from the file"


def _entry(line: bytes) -> module.Entry:
    import msgspec

    return msgspec.json.decode(line[9:], type=module.Entry)


def test_a_power_cut_that_leaves_zeros_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    fill(path)
    path.write_bytes(path.read_bytes() + b"\0" * 512)
    with Ledger(path) as again:
        assert steps(again) == STEPS


def test_damage_in_the_middle_stops_the_start(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    fill(path)
    raw = bytearray(path.read_bytes())
    raw[20] ^= 1
    path.write_bytes(raw)
    with pytest.raises(ConfigError, match=r"ledger:2: this line is damaged.*move the file away"):
        Ledger(path)
    path.write_bytes(b"")
    Ledger(path).close()  # the failed start holds no lock


@pytest.mark.parametrize("line", [1, 2])
def test_a_ledger_of_a_newer_version_is_to_be_kept(tmp_path: Path, line: int) -> None:
    path, header = tmp_path / "ledger", module.HEADER
    body = b'{"id":"d1","step":"paused","expires_ns":1}'
    if line == 1:
        header = header.replace(b"2", b"3")
    path.write_bytes(header + b"%08x %s\n" % (zlib.crc32(body, zlib.crc32(header)), body))
    with pytest.raises(ConfigError, match=rf"ledger:{line}: .*a newer one wrote it; start that version, and keep"):
        Ledger(path)


@given(st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_damage_is_read_as_something_else(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "ledger"
    path.unlink(missing_ok=True)
    fill(path)
    raw = bytearray(path.read_bytes())
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(raw)
    try:
        with Ledger(path) as again:
            left = steps(again)
    except ConfigError:
        return
    assert left == STEPS


def refused(path: Path, raw: bytes) -> bool:
    path.write_bytes(raw)
    try:
        Ledger(path).close()
    except ConfigError:
        return True
    return False


@pytest.mark.parametrize("old", [False, True])
def test_no_flipped_bit_of_the_last_line_makes_it_be_forgotten(tmp_path: Path, old: bool) -> None:
    path = tmp_path / "ledger"
    with Ledger(path) as ledger:
        ledger.grant(scale("d"), grant())
        ledger.send(scale("d"))
    raw = as_before(path.read_bytes()) if old else path.read_bytes()
    start = raw.rindex(b"\n", 0, -1) + 1
    for at in range(start, len(raw)):
        for bit in range(8):
            changed = bytearray(raw)
            changed[at] ^= 1 << bit
            assert refused(path, bytes(changed)), f"bit {bit} of byte {at - start} of {raw[start:]!r}"


def test_lines_are_not_taken_out_put_in_or_swapped_unseen(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    fill(path)
    lines = path.read_bytes().splitlines(keepends=True)
    for i in range(len(lines) - 1):
        assert refused(path, b"".join(lines[:i] + lines[i + 1 :])), f"line {i + 1} is missing"
        assert refused(path, b"".join([*lines[:i], lines[i + 1], lines[i], *lines[i + 2 :]])), f"line {i + 1} moved"
        assert refused(path, b"".join([*lines[: i + 1], lines[i], *lines[i + 1 :]])), f"line {i + 1} is there twice"
    assert not refused(path, b"".join(lines))


def as_before(raw: bytes) -> bytes:
    """A ledger as versions without a chain wrote it."""
    bodies = [line.partition(b" ")[2] for line in raw.splitlines()[1:]]
    return b"".join(b"%08x %s\n" % (zlib.crc32(body), body) for body in bodies)


def test_a_ledger_of_an_older_version_is_read_and_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    fill(path)
    chained = path.read_bytes()
    old = as_before(chained)
    for raw in (old, old + b"0badc0de {"):
        path.write_bytes(raw)
        with Ledger(path) as again:
            assert steps(again) == STEPS
        assert path.read_bytes().splitlines()[0] == chained.splitlines()[0]
        assert not refused(path, path.read_bytes())
    assert refused(path, old[:-3] + b"?\n")
    assert refused(path, chained.partition(b"\n")[2]), "without its first line it is not one of an older version"


def test_a_line_that_the_disk_takes_only_in_part_is_no_line(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    fill(path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Ledger(path) as ledger:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 40, hard))
        try:
            with pytest.raises(
                NotWrittenError, match=r"actuator\.ledger: .* cannot be written: No space left.*make room on the disk"
            ):
                ledger.send(scale("granted"))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert steps(ledger) == STEPS
    with Ledger(path) as again:
        assert steps(again) == STEPS


def test_a_second_actuator_cannot_share_it(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger"), pytest.raises(ConfigError, match="in use by another actuator"):
        Ledger(tmp_path / "ledger")


def test_a_path_that_cannot_be_written_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"actuator\.ledger: .* cannot be used"):
        Ledger(tmp_path / "file" / "ledger")


def test_compaction_keeps_one_line_each_and_forgets_what_expired_long_ago(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    fill(path)
    day = 86_400 * S
    with Ledger(path, keep_ns=day) as ledger:
        assert len(path.read_bytes().splitlines()) == 1 + len(STEPS)
        ledger.finish(scale("late", time_ns=NOW + 3 * day), outcome("late", time_ns=NOW + 3 * day))
    with Ledger(path, keep_ns=day) as ledger:
        assert steps(ledger) == {"granted": "granted", "sent": "sent"}, "the unsettled are never forgotten"
        assert ledger.get("late") is not None


def test_a_long_run_compacts_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMPACT_LINES", 10)
    path = tmp_path / "ledger"
    with Ledger(path, keep_ns=1000 * S) as ledger:
        for i in range(60):
            now = NOW + i * 1000 * S
            ledger.finish(scale(f"d{i}", time_ns=now), outcome(f"d{i}", time_ns=now))
        assert ledger.get("d59") is not None
        assert ledger.get("d0") is None
        assert len(path.read_bytes().splitlines()) < 30
