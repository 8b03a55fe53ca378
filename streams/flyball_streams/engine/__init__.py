"""The event-time engine: pure stages, the same in a worker, a replay, a backtest and a test."""

from flyball_streams.engine.directory import Directory as Directory
from flyball_streams.engine.engine import Engine as Engine
from flyball_streams.engine.lane import Incoming as Incoming, Lane as Lane
