"""Forecasts of demand: the models of all workloads of a cell, and their records."""
