"""Scheduling of deferrable work against a cost curve: carbon, price, or a blend."""
