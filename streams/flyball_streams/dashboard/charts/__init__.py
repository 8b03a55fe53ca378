"""From the state to chart options: pure functions, one chart in each module."""
