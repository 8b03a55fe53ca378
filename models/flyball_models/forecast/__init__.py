"""Forecasts of demand: a point forecast per horizon, and calibrated quantiles around any point forecast."""
