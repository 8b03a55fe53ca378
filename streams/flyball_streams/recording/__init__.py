"""Record topics to a file and play them back.

A recording is one Parquet file: real messages, with keys, headers and times, in one order that does not depend on how
they arrived. The replayer, the backtest and the tests all read it in that order.
"""

from flyball_streams.recording.format import (
    FORMAT as FORMAT,
    SOURCES as SOURCES,
    RecordedMessage as RecordedMessage,
    event_time_ns as event_time_ns,
)
from flyball_streams.recording.reader import Recording as Recording
from flyball_streams.recording.recorder import record as record
from flyball_streams.recording.replayer import replay as replay
from flyball_streams.recording.writer import RecordingWriter as RecordingWriter
