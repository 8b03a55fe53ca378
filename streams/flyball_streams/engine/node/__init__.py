"""The node lane: frames in; demand, profiles, anomalies and proposals to migrate out."""

from flyball_streams.engine.node.lane import NodeLane as NodeLane
