"""The bytes on the wire, kept: a change of any of them is a change of the contract."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.contracts.strategies import sample, samples

from flyball_contracts.codec import Message, decode_message, frame_message, record_message, snapshot_message
from flyball_contracts.frame import Frame, make_frame
from flyball_contracts.metrics import LAYOUTS
from flyball_contracts.records import Record, Snapshot

GOLDEN = Path(__file__).parent / "golden"


def frame_of(schema: int) -> Frame:
    """Two rows of counted values with one missing."""
    width = len(LAYOUTS[schema])
    values = np.arange(2 * width, dtype=np.float32).reshape(2, width) / np.float32(8)
    values[1, 0] = np.nan
    return make_frame(
        values,
        schema=schema,
        node="node-1",
        boot_id="00000000-0000-4000-8000-000000000001",
        epoch=2,
        seq=3,
        time_ns=1_800_000_000_123_456_789,
        read_ns=400_000,
        period_ns=1_000_000_000,
        inventory_epoch=5,
    )


def cases() -> dict[str, tuple[Record | Frame | Snapshot, Message]]:
    found: dict[str, tuple[Record | Frame | Snapshot, Message]] = {}
    for name, (full, minimal) in samples().items():
        found[name] = full, record_message(full, "/golden")
        found[f"{name}.minimal"] = minimal, record_message(minimal, "/golden")
    for layout in LAYOUTS.values():
        frame = frame_of(layout.schema)
        found[f"Frame.{layout.name}"] = frame, frame_message(frame)
    snapshot: Snapshot = sample(Snapshot, full=True)
    found["Snapshot"] = snapshot, snapshot_message(snapshot)
    return found


CASES = cases()


def written(message: Message) -> str:
    """A message as a file that a person can read where it is text."""
    text = any(name == "content-type" for name, _ in message.headers)
    return (
        json.dumps(
            {
                "topic": message.topic,
                "key": message.key.decode(),
                "headers": [[name, value.decode()] for name, value in message.headers],
                "text" if text else "hex": message.value.decode() if text else message.value.hex(),
            },
            indent=1,
        )
        + "\n"
    )


def test_there_is_a_file_for_each_and_no_other(update_golden: bool) -> None:
    if update_golden:
        GOLDEN.mkdir(exist_ok=True)
        for path in GOLDEN.glob("*.json"):
            path.unlink()
        for name, (_, message) in CASES.items():
            (GOLDEN / f"{name}.json").write_text(written(message))
    assert {path.stem for path in GOLDEN.glob("*.json")} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_the_bytes_are_what_they_were(name: str) -> None:
    _, message = CASES[name]
    assert written(message) == (GOLDEN / f"{name}.json").read_text(), (
        "the bytes on the wire changed; if that is meant: pytest tests/contracts --update-golden"
    )


@pytest.mark.parametrize("name", CASES)
def test_yesterday_s_bytes_can_be_read(name: str) -> None:
    value, _ = CASES[name]
    kept = json.loads((GOLDEN / f"{name}.json").read_text())
    raw = kept["text"].encode() if "text" in kept else bytes.fromhex(kept["hex"])
    headers = [(header, text.encode()) for header, text in kept["headers"]]
    assert decode_message(kept["topic"], raw, headers) == value
