"""Verifies signatures: a decision counts only if a configured key with a matching scope signed it."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from flyball_contracts.config import DecisionKey
from flyball_contracts.errors import DecodeError
from flyball_contracts.records import AnyDecision
from flyball_contracts.records.subjects import covered
from flyball_contracts.topics import DECISIONS

Headers = Sequence[tuple[str, bytes | None]]


class Authority:
    """Verifies decisions before they are used; without keys, every decodable decision is accepted.

    An unsigned or wrongly signed message is not a decision: it goes to the dead letters and does not affect the id in
    it. Raises :class:`ConfigError` for invalid keys.
    """

    def __init__(self, keys: Sequence[DecisionKey]) -> None:
        self._ring = None
        if keys:
            from flyball_contracts.security.signing import Keyring  # an actuator without keys does not need the library

            self._ring = Keyring({f"actuator.keys[{i}].public": key.public for i, key in enumerate(keys)})
            self._scopes = dict(zip(self._ring.ids, keys, strict=True))

    def check(self, decision: AnyDecision, value: bytes | None, headers: Headers) -> str:
        """Return the id of the key that signed a decision, empty without configured keys.

        :class:`DecodeError` if invalid.
        """
        if self._ring is None:
            return ""
        name = self._ring.signer(DECISIONS.name, value, headers)
        scope = self._scopes[name]
        if scope.types and type(decision).__name__ not in scope.types:
            raise DecodeError(
                f"key {name} may sign {', '.join(scope.types)}, not {type(decision).__name__}; see actuator.keys"
            )
        for what, patterns, named in (
            ("cells", scope.cells, decision.cell),
            ("workloads", scope.workloads, decision.workload),
        ):
            if not (covered(named, patterns) if what == "workloads" else any(fnmatchcase(named, p) for p in patterns)):
                raise DecodeError(f"key {name} is for {what} {', '.join(patterns)}, not {named!r}; see actuator.keys")
        return name
