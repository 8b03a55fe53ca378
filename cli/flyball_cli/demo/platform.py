"""Queries of the demo to the simulated platform at the end: operations and accounts."""

import urllib.error
import urllib.request
from typing import Any, TypeVar

import msgspec

from flyball_contracts.errors import TransportError
from flyball_contracts.records import Account
from flyball_contracts.simulated import Operation

T = TypeVar("T")
TIMEOUT_S = 5.0


class Platform:
    """Reads the simulated platform at ``url``; :class:`TransportError` when it does not respond."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    def accounts(self) -> dict[str, Account]:
        """Newest account of each scenario."""
        return {account.scenario: account for account in self._get("/v1/accounts", list[Account])}

    def operations(self) -> dict[str, Operation]:
        """All operations so far, by the id of their decision."""
        return {operation.id: operation for operation in self._get("/v1/operations", list[Operation])}

    def _get(self, path: str, kind: type[T]) -> T:
        try:
            with urllib.request.urlopen(self.url + path, timeout=TIMEOUT_S) as answer:
                body: Any = answer.read()
            return msgspec.json.decode(body, type=kind)
        except (OSError, urllib.error.URLError, msgspec.DecodeError) as error:
            raise TransportError(f"the simulated platform at {self.url}{path} gives no answer: {error}") from error
