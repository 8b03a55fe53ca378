"""Metrics pages of servers: fetched, parsed, and converted to rows."""
