"""The error tree: one class per decision that a caller can take.

::

    FlyballError
    ├── ConfigError        the operator must change a file or a flag
    ├── DecodeError        bytes that are not the record they claim to be: dead letter
    │   └── UnknownSchema  a frame layout or record type that this version does not know
    ├── RecordError        a record that decodes but breaks its own rules: dead letter
    ├── TransportError     a broker or a server cannot be reached: retry, then report
    ├── RecordingError     a recording or trace that cannot be read: report and stop
    └── Stopped            the caller was stopped while it waited: end quietly
"""


class FlyballError(Exception):
    """Root of every error that Flyball raises on purpose; its text names the remedy."""


class ConfigError(FlyballError):
    """A configuration that the operator must change; names file, line and key."""


class DecodeError(FlyballError):
    """Bytes that are not the record that they claim to be."""


class UnknownSchema(DecodeError):
    """A frame layout or a record type that this version does not know."""


class RecordError(FlyballError):
    """A record that decodes but breaks its own rules."""


class TransportError(FlyballError):
    """A broker or a server that cannot be reached or refuses us."""


class RecordingError(FlyballError):
    """A recording or a public trace that cannot be read."""


class Stopped(FlyballError):
    """Stopped while waiting for something else."""
