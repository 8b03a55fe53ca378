"""The ``flyball`` command and the composition root."""
