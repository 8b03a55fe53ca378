"""The audit trail: no edit, deletion, swap or truncation goes unseen, and it says what was done."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tests.actuators.ledger.test_ledger import outcome
from tests.actuators.loop import config_for, ended, of, publish, running, wait_for
from tests.actuators.platform_server import platform_server
from tests.actuators.samples import NOW, S, scale

from flyball_actuators.audit import Anchor, AnyEntry, Broken, Trail, anchor_of, entries_about, verified
from flyball_actuators.audit.entries import Called, Judged, Published, Received, Started, Submitting
from flyball_actuators.guard import Verdict
from flyball_actuators.platforms.calls import Call
from flyball_contracts.config import ActuatorConfig, PlatformConfig
from flyball_contracts.errors import ConfigError

CONFIG = ActuatorConfig()


def opened(path: Path | None, **more: int) -> Trail:
    return Trail(path, "host/1/aa", CONFIG, lambda: NOW, **more)


def fill(trail: Trail, decisions: int = 3) -> str:
    """Some decisions from the topic to their final outcomes; the last anchor that was published."""
    anchor = ""
    for i in range(decisions):
        decision = scale(f"d{i}")
        trail.received(decision, 0, i, "")
        trail.judged(decision, "observed", Verdict("accepted", "", ""), ("rate", "blast_radius"))
        trail.submitting(decision, "test", None, dry_run=False)
        trail.called(decision.id, "test", Call(verb="PUT", object="/scale", status="200", request_id=f"r{i}"))
        anchor = trail.published(outcome(decision.id)).audit
    return anchor


def made(path: Path) -> tuple[bytes, Anchor]:
    with opened(path) as trail:
        anchor = anchor_of(fill(trail), "the outcome of d2")
    assert anchor is not None
    return path.read_bytes(), anchor


def broken(path: Path, raw: bytes, *anchors: Anchor) -> Broken:
    path.write_bytes(raw)
    with pytest.raises(Broken) as caught:
        verified(path, anchors)
    return caught.value


def test_a_whole_trail_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    raw, anchor = made(path)
    checked = verified(path, [anchor])
    assert (checked.lines, checked.decisions, checked.anchored) == (16, 3, 17)
    assert checked.head == f"{anchor.trail}/{anchor.line}/{anchor.checksum}"
    with opened(path) as trail:
        fill(trail)
    assert path.read_bytes().startswith(raw), "it is only ever appended to"
    assert verified(path, [anchor]).lines == 32
    kinds = [type(entry) for entry in entries_about(path, "d1")]
    assert kinds == [Received, Judged, Submitting, Called, Published] * 2


@given(st.data())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nothing_that_is_done_to_it_goes_unseen(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "audit"
    path.unlink(missing_ok=True)
    raw, anchor = made(path)
    lines = raw.splitlines(keepends=True)
    at = data.draw(st.integers(0, len(lines) - 1))
    other = data.draw(st.integers(0, len(lines) - 1).filter(lambda i: i != at))
    how = data.draw(st.sampled_from(["flip", "delete", "swap", "repeat", "move", "cut", "cut anywhere"]))
    if how == "flip":
        changed = bytearray(raw)
        changed[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        broken(path, bytes(changed), anchor)
        return
    if how == "cut anywhere":
        broken(path, raw[: data.draw(st.integers(0, len(raw) - 1))], anchor)
        return
    if how == "delete":
        del lines[at]
    elif how == "swap":
        lines[at], lines[other] = lines[other], lines[at]
    elif how == "repeat":
        lines.insert(at, lines[other])
    elif how == "move":
        lines.insert(other, lines.pop(at))
    else:
        lines = lines[:at]
    changed_to = b"".join(lines)
    if changed_to.startswith(raw):  # a line put after the last one that was anchored
        assert broken(path, changed_to, anchor).line == len(lines)
    else:
        assert broken(path, changed_to, anchor).line <= max(at, other) + 2


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    raw, anchor = made(path)
    lines = raw.splitlines(keepends=True)
    edited = raw.replace(b'"status":"200"', b'"status":"500"', 1)
    assert str(broken(path, edited)).startswith(f"{path}:6: its content was changed: the lines after it still follow")
    assert "this is line 7 of what was written: 2 lines before it were taken out" in str(
        broken(path, b"".join(lines[:4] + lines[6:]))
    )
    assert "it was put here" in str(broken(path, b"".join([*lines[:8], lines[3], *lines[8:]])))
    cut = b"".join(lines[:-3])
    path.write_bytes(cut)
    assert verified(path).anchored == 0, "without an anchor it cannot be told"
    assert str(broken(path, cut, anchor)).startswith(f"{path}:14: this is the last line, and the outcome of d2 was")
    assert "3 lines or more were cut off the end" in str(broken(path, cut, anchor))
    forged = tmp_path / "forged"
    forged.write_bytes(lines[0])
    with opened(forged) as trail:  # who can write the file can make a chain of his own
        fill(trail, 2)
        fill(trail)
    assert verified(forged).lines == 26
    assert "rewritten up to here" in str(broken(path, forged.read_bytes(), anchor))
    assert "no first line" in str(broken(path, b"hello\n"))


def test_a_crash_in_a_line_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    raw, anchor = made(path)
    path.write_bytes(raw + b'0123 {"what":"call"')
    assert verified(path, [anchor]).unfinished == 19
    with opened(path) as trail:
        trail.refused(1, 7, "no decision")
    checked = verified(path, [anchor])
    assert (checked.unfinished, checked.lines) == (0, 18)
    start = entries_about(path, "")[16]
    assert isinstance(start, Started)
    assert start.cut == 19


def test_an_actuator_does_not_go_on_with_a_trail_that_was_changed(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    raw, _ = made(path)
    path.write_bytes(raw.replace(b'"r1"', b'"r9"'))
    with pytest.raises(ConfigError, match=r"actuator\.audit: .*audit:11: this line, .* was changed; see"):
        opened(path)
    path.write_bytes(b"my diary\n")
    with pytest.raises(ConfigError, match=r"is no audit trail"):
        opened(path)
    other = tmp_path / "other"
    with opened(other), pytest.raises(ConfigError, match="in use by another actuator"):
        opened(other)


def test_a_long_trail_is_put_aside_and_followed(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    with opened(path, most_bytes=4000) as trail:
        first = anchor_of(fill(trail), "the first")
        last = anchor_of(fill(trail, 9), "the last")
    assert first is not None
    assert last is not None
    checked = verified(path, [first, last])
    assert len(checked.files) > 2
    assert checked.decisions == 9
    assert len([e for e in entries_about(path, "d0") if isinstance(e, Received)]) == 2
    old = checked.files[0]
    whole = old.read_bytes()
    old.write_bytes(whole[: whole.rindex(b"\n", 0, -1) + 1])
    with pytest.raises(Broken, match="lines are missing"):
        verified(path)
    old.unlink()
    assert verified(path).missing


def test_without_a_file_nothing_is_recorded() -> None:
    with opened(None) as trail:
        assert fill(trail) == ""


def test_an_actuator_records_what_it_does(bootstrap: str, tmp_path: Path) -> None:
    path = tmp_path / "audit"
    with platform_server(chat=4) as server:
        config = config_for(
            bootstrap, "audited", mode="live", audit=str(path),
            platforms=(PlatformConfig(driver="simulated", url=server.url, poll_s=0.05),),
        )  # fmt: skip
        with running(config):
            publish(bootstrap, scale("good"), scale("old", time_ns=NOW - 500 * S))
            wait_for(ended(bootstrap, 2), "both are over")
    good: list[AnyEntry] = entries_about(path, "good")
    assert [type(entry) for entry in good] == [
        Received, Judged, Published, Submitting, Judged, Called, Published, Published,
    ]  # fmt: skip
    looks = [entry for entry in good if isinstance(entry, Judged)]
    assert [(look.stage, look.objected, "blast_radius" in look.passed) for look in looks] == [
        ("observed", "", True), ("last", "", True),
    ]  # fmt: skip
    call = good[5]
    assert isinstance(call, Called)
    assert (call.driver, call.verb, call.object, call.status) == ("simulated", "POST", "/v1/operations", "202")
    old = entries_about(path, "old")
    assert [type(entry) for entry in old] == [Received, Judged, Published]
    assert isinstance(old[1], Judged)
    assert (old[1].objected, old[1].code) == ("expired", "expired")
    published = [of(bootstrap, "good", "done").audit, of(bootstrap, "old", "refused").audit]
    anchors = [anchor for text in published if (anchor := anchor_of(text, "outcome")) is not None]
    assert len(anchors) == 2
    assert verified(path, anchors).anchored == verified(path).lines + 1
