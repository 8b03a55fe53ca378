"""Demands to try policies on: from recordings, traces and models."""
