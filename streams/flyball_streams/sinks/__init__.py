"""Writes records to stores other than Kafka."""

from flyball_streams.sinks.influx import SinkReport as SinkReport, run_influx_sink as run_influx_sink
from flyball_streams.sinks.lines import to_lines as to_lines
