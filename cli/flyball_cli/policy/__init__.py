"""Trying policies of the guard on recorded decisions."""
