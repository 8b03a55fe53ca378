"""The health file of a process: a supervisor looks at its age."""

import logging
from pathlib import Path

_LOG = logging.getLogger(__name__)


class HealthFile:
    """Touches a file, if there is one; a file that cannot be touched is logged once and ends nothing."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._failing = False

    def touch(self) -> None:
        """Show that the caller is well."""
        if self._path is None:
            return
        try:
            self._path.touch()
        except OSError as error:
            if not self._failing:
                _LOG.warning(
                    "health file %s cannot be touched: %s; a supervisor that looks at it will end this process, so let "
                    "--health-file name a file in a folder that is there and may be written",
                    self._path, error.strerror,
                )  # fmt: skip
            self._failing = True
        else:
            self._failing = False
