"""Proposals, decisions, outcomes, and operators' orders."""
