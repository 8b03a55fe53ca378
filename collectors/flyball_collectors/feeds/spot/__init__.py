"""Spot prices and risks of the clouds' machines."""
