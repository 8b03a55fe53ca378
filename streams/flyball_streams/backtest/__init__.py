"""Compares policies at equal service on the demand of a recording or a trace."""
