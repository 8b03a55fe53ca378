"""Chart options computed from the state: pure functions, one chart per module."""
