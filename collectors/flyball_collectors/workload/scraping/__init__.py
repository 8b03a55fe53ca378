"""Metrics pages of servers: fetched, read, and turned into rows."""
