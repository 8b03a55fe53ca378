"""Backtest: compares policies on the demand of a recording or a trace, at equal service."""
