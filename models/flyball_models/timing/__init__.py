"""Timing of deferrable work against a curve of cost: carbon, price, or a blend."""
