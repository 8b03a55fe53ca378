"""Demand for backtests: from recordings, traces and models."""
