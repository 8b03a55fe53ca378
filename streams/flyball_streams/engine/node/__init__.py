"""The node lane: frames in; demand, profiles, anomalies and wishes to migrate out."""

from flyball_streams.engine.node.lane import NodeLane as NodeLane
