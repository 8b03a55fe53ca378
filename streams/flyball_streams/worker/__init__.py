"""The stream worker: a thin Faust app around the engine's lanes."""
