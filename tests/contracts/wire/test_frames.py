from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from flyball_contracts.codec import decode_message, frame_message
from flyball_contracts.errors import DecodeError, UnknownSchema
from flyball_contracts.frame import MAX_ROWS, Frame, decode_frame, encode_frame, make_frame, stacked
from flyball_contracts.metrics import LAYOUTS, layout_of

INT64 = 2**63 - 1
TIMES = st.integers(0, INT64)


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    schema = draw(st.sampled_from(sorted(LAYOUTS)))
    rows = draw(st.integers(0, 6))
    size = 4 * rows * len(LAYOUTS[schema])
    return Frame(
        schema=schema,
        node=draw(st.text(min_size=1, max_size=12)),
        boot_id=draw(st.text(max_size=12)),
        epoch=draw(TIMES),
        seq=draw(TIMES),
        time_ns=draw(TIMES),
        read_ns=draw(TIMES),
        period_ns=draw(st.integers(1, INT64)),
        inventory_epoch=draw(TIMES),
        rows=rows,
        block=draw(st.binary(min_size=size, max_size=size)),  # any bits: every kind of NaN, too
    )


@given(frames())
@settings(max_examples=300, deadline=None)
def test_every_frame_survives_the_wire_bit_for_bit(frame: Frame) -> None:
    message = frame_message(frame)
    assert message.key == frame.node.encode()
    back = decode_message(message.topic, message.value, message.headers)
    assert back == frame
    assert isinstance(back, Frame)
    assert back.values.tobytes() == frame.block
    assert back.values.shape == (frame.rows, len(LAYOUTS[frame.schema]))


def a_frame(layout: int = 3, height: int = 2, **changes: Any) -> Frame:
    values = np.arange(height * len(layout_of(layout)), dtype=np.float32).reshape(height, len(layout_of(layout)))
    frame = make_frame(
        values,
        schema=layout,
        node="n1",
        boot_id="b",
        epoch=1,
        seq=2,
        time_ns=3,
        period_ns=4,
        inventory_epoch=5,
    )
    return msgspec.structs.replace(frame, **changes)


def test_nan_payloads_arrive_as_sent() -> None:
    bits = np.array([0x7FC00000, 0x7FC12345, 0xFFC00001, 0x7F800001, 0x7F800000, 0x80000000], "<u4")
    sent = np.resize(bits, (1, len(layout_of(3))))
    values = sent.view("<f4")
    frame = a_frame(height=1, block=values.tobytes())
    assert np.array_equal(decode_frame(encode_frame(frame)).values.view("<u4"), sent)


def test_values_are_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        a_frame().values[0, 0] = 1


def test_an_array_of_another_shape_or_order_is_packed_or_refused() -> None:
    width = len(layout_of(3))
    order: Callable[[NDArray[np.float32]], NDArray[np.float32]] = np.asfortranarray
    values = order(np.arange(3 * width, dtype=np.float32).reshape(3, width))
    common = {"schema": 3, "node": "n", "boot_id": "", "epoch": 0, "seq": 0, "time_ns": 0, "period_ns": 1}
    assert np.array_equal(make_frame(values, **common, inventory_epoch=0).values, values)  # type: ignore[arg-type]
    for shape in ((width,), (1, width + 1), (1, 1, width)):
        with pytest.raises(ValueError, match=f"schema 3 has {width} metrics; got an array of shape"):
            make_frame(np.zeros(shape, np.float32), **common, inventory_epoch=0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"schema": 99}, r"schema 99 is not known here \(known: 1 \(gpu\), 2 \(host\), 3 \(workload\), "),
        ({"rows": -1}, "has -1 rows"),
        ({"rows": MAX_ROWS + 1}, f"at most {MAX_ROWS} are allowed"),
        ({"rows": 3}, "block has 112 bytes; 3 rows of 14 float32 need 168"),
        ({"block": b""}, "block has 0 bytes"),
        ({"node": ""}, "node must be named"),
        ({"period_ns": 0}, "period_ns positive"),
        ({"epoch": -1}, "not negative"),
        ({"seq": -1}, "not negative"),
        ({"read_ns": -1}, "not negative"),
        ({"time_ns": -1}, "time_ns or inventory_epoch outside"),
        ({"time_ns": 2**63}, "time_ns or inventory_epoch outside"),
        ({"inventory_epoch": 2**63}, "time_ns or inventory_epoch outside"),
    ],
)
def test_each_rule_of_the_format_is_checked(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(DecodeError, match=says):
        decode_frame(encode_frame(a_frame(**changes)))


@pytest.mark.parametrize(
    "raw",
    [b"", b"\xc0", b"\x91" * 100_000, b"\xdd\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"{}", b"\x9b" + b"\xc0" * 11],
    ids=["empty", "nil", "deep", "long array", "long text", "JSON", "nils"],
)
def test_what_is_no_frame_is_a_decode_error(raw: bytes) -> None:
    with pytest.raises(DecodeError, match="not a telemetry frame"):
        decode_frame(raw)


def test_blocks_of_one_layout_are_stacked_to_one_array() -> None:
    blocks = [a_frame(3, rows).block for rows in (2, 0, 3)]
    rows = stacked(blocks, layout_of(3))
    assert rows.shape == (5, len(layout_of(3)))
    assert np.array_equal(rows[2:], a_frame(3, 3).values)
    assert stacked([], layout_of(2)).shape == (0, len(layout_of(2)))
    with pytest.raises(UnknownSchema):
        layout_of(0)


def test_layouts_name_each_column_once() -> None:
    for schema, layout in LAYOUTS.items():
        assert layout.schema == schema
        assert len(layout.columns) == len(layout), f"two columns of {layout.name} have one key"
        assert all(layout.column(metric.key) == i for i, metric in enumerate(layout.metrics))
        assert all(metric.unit and metric.about for metric in layout.metrics)
