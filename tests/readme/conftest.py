"""The recording of the command line's tests."""

from tests.cli.conftest import recording as recording
