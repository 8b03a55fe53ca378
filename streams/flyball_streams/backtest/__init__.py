"""Backtest: policies on the demand of a recording or a trace, at equal service, with what is not known said."""
