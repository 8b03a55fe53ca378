"""Readings of one device at each tick, and the frames made from them."""
