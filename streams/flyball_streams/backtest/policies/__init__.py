"""Families of policies, and what they know of the demand."""
