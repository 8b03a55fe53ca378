"""Proposals, decisions, outcomes, and the orders of people."""
