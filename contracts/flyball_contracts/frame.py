"""The telemetry frame: one node's tick as a msgpack header and one packed float32 block.

Wire format: a msgpack array of the fields of :class:`Frame` in order; ``block`` is a msgpack *bin* of
little-endian float32, row-major ``[row, metric]``. A missing value is NaN. Identity and topology
of the rows are in the :class:`~flyball_contracts.records.inventory.Inventory` of the same epoch.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from flyball_contracts.errors import DecodeError, UnknownSchema
from flyball_contracts.ids import MAX_TIME_NS
from flyball_contracts.metrics import LAYOUTS, Layout, layout_of

MAX_ROWS = 4096  # a rack of 72 GPUs split in 7 MIG slices is 504


class Frame(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """One node's measurements at one instant.

    ``(node, boot_id, epoch, seq)`` is unique: ``epoch`` counts starts of the agent, ``seq`` the
    frames of one run over all schemas. ``time_ns`` is when the values were true, ``read_ns`` how long
    reading them took, ``period_ns`` the time that counters cover. ``rows`` is the number of rows in ``block``.
    """

    schema: int
    node: str
    boot_id: str
    epoch: int
    seq: int
    time_ns: int
    read_ns: int
    period_ns: int
    inventory_epoch: int
    rows: int
    block: bytes

    @property
    def values(self) -> NDArray[np.float32]:
        """The block as a read-only ``float32[rows, metrics]`` view."""
        return np.frombuffer(self.block, "<f4").reshape(self.rows, len(layout_of(self.schema)))


_WIDTHS = {schema: len(layout) for schema, layout in LAYOUTS.items()}
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Frame)


def make_frame(
    values: NDArray[np.float32],
    *,
    schema: int,
    node: str,
    boot_id: str,
    epoch: int,
    seq: int,
    time_ns: int,
    period_ns: int,
    inventory_epoch: int,
    read_ns: int = 0,
) -> Frame:
    """Pack ``values`` (``float32[rows, metrics]`` in the schema's column order) into a frame.

    Raises ``ValueError`` when the shape is not the schema's.
    """
    width = len(layout_of(schema))
    if values.ndim != 2 or values.shape[1] != width:
        raise ValueError(f"schema {schema} has {width} metrics; got an array of shape {values.shape}")
    block = np.ascontiguousarray(values, "<f4").tobytes()
    rows = values.shape[0]
    return Frame(schema, node, boot_id, epoch, seq, time_ns, read_ns, period_ns, inventory_epoch, rows, block)


def encode_frame(frame: Frame) -> bytes:
    """Bytes of a frame on the wire."""
    return _encoder.encode(frame)


def decode_frame(raw: bytes) -> Frame:
    """Frame from its bytes, with every rule of the format checked.

    Raises :class:`DecodeError` (and nothing else) for bytes that are not a valid frame;
    :class:`UnknownSchema` for a layout that this version does not know.
    """
    try:
        frame = _decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, OverflowError, RecursionError) as error:
        raise DecodeError(f"not a telemetry frame ({len(raw)} bytes): {error}") from error
    width, rows = _WIDTHS.get(frame.schema), frame.rows
    if (  # all rules at once, because every message is checked
        width is not None
        and 0 <= rows <= MAX_ROWS
        and len(frame.block) == 4 * rows * width
        and frame.node
        and frame.period_ns > 0
        and frame.epoch >= 0
        and frame.seq >= 0
        and frame.read_ns >= 0
        and 0 <= frame.time_ns <= MAX_TIME_NS
        and 0 <= frame.inventory_epoch <= MAX_TIME_NS
    ):
        return frame
    raise _fault(frame)


def _fault(frame: Frame) -> DecodeError:
    """Return the format rule that a frame violates."""
    try:
        width = len(layout_of(frame.schema))
    except UnknownSchema as error:
        return error
    if not 0 <= frame.rows <= MAX_ROWS:
        return DecodeError(f"frame of node {frame.node!r} has {frame.rows} rows; at most {MAX_ROWS} are allowed")
    if len(frame.block) != 4 * frame.rows * width:
        return DecodeError(
            f"frame of node {frame.node!r}: block has {len(frame.block)} bytes; "
            f"{frame.rows} rows of {width} float32 need {4 * frame.rows * width}"
        )
    if not frame.node or frame.period_ns <= 0 or frame.epoch < 0 or frame.seq < 0 or frame.read_ns < 0:
        return DecodeError(
            f"frame of node {frame.node!r}: node must be named, period_ns positive, epoch, seq and read_ns not negative"
        )
    return DecodeError(f"frame of node {frame.node!r}: time_ns or inventory_epoch outside 0 .. 2^63-1")


def stacked(blocks: Sequence[bytes], layout: Layout) -> NDArray[np.float32]:
    """Rows of all blocks of one layout in one read-only array, ``float32[rows, metrics]``.

    Raises ``ValueError`` when they are not whole rows; blocks of decoded frames always are.
    """
    return np.frombuffer(b"".join(blocks), "<f4").reshape(-1, len(layout))
