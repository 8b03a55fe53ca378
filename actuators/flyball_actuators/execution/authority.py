"""Verifies signatures: a decision counts only if a configured key with a matching scope signed it."""

from collections.abc import Callable, Sequence

from flyball_actuators.guard import Signature, World, of_other_tenant, out_of_scope
from flyball_contracts.config import DecisionKey
from flyball_contracts.errors import ConfigError, DecodeError
from flyball_contracts.records import AnyDecision
from flyball_contracts.topics import DECISIONS

Headers = Sequence[tuple[str, bytes | None]]


class Authority:
    """Verifies decisions before they are used; without keys, every decodable decision is accepted.

    A message that no key signed, or whose key may not sign it, is not a decision: it goes to the dead letters and does
    not affect the id in it. ``driver_of`` returns the name of the platform that carries a decision out, empty if there
    is none; ``world`` returns the declared workloads, and ``refresh`` reads the newest ones. Raises
    :class:`ConfigError` for invalid keys.
    """

    def __init__(
        self,
        keys: Sequence[DecisionKey],
        driver_of: Callable[[AnyDecision], str],
        world: Callable[[], World],
        refresh: Callable[[], None],
    ) -> None:
        self._ring = None
        self._driver_of, self._world, self._refresh = driver_of, world, refresh
        if keys:
            try:  # an actuator without keys does not need the library
                from flyball_contracts.security.signing import Keyring
            except ModuleNotFoundError as error:
                raise ConfigError(f"actuator.keys: {error.name} is missing: pip install 'flyball[actuate]'") from error

            self._ring = Keyring({f"actuator.keys[{i}].public": key.public for i, key in enumerate(keys)})
            self._signatures = {
                name: Signature(name, f"actuator.keys[{i}]", key)
                for i, (name, key) in enumerate(zip(self._ring.ids, keys, strict=True))
            }

    def check(self, decision: AnyDecision, value: bytes | None, headers: Headers) -> Signature | None:
        """Return the signature of a decision, ``None`` without configured keys.

        Raises :class:`DecodeError` if no configured key signed it, or if its key may not sign this decision.
        """
        if self._ring is None:
            return None
        signature = self._signatures[self._ring.signer(DECISIONS.name, value, headers)]
        problem = out_of_scope(signature, decision, self._driver_of(decision))
        if not problem and self._of_other_tenant(signature, decision):
            self._refresh()  # its workload may have been declared a moment ago
            problem = self._of_other_tenant(signature, decision)
        if problem:
            raise DecodeError(problem)
        return signature

    def _of_other_tenant(self, signature: Signature, decision: AnyDecision) -> str:
        return of_other_tenant(signature, decision, self._world().tenant(decision.workload))
