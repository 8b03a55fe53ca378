"""Outputs of the agent other than Kafka: a Prometheus endpoint and OTLP, both from the latest readings."""

from flyball_collectors.export.exports import NEEDS as NEEDS, Exports as Exports, installed as installed
from flyball_collectors.export.latest import Framed as Framed
