"""Capacity of one replica: estimates from the architecture, from history, online, and their weighted combination."""
