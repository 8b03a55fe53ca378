"""Reads which namespaces the names of workloads belong to, as the controller has written them."""

from collections.abc import Mapping

import msgspec

from flyball_actuators.platforms.kubernetes.api import Api
from flyball_contracts.declared.names import NAMES_PATH, NamesObject


def read_names(api: Api) -> Mapping[str, tuple[str, ...]]:
    """Namespaces by name; empty without a controller, or without the right to read them.

    Raises :class:`PlatformError` if the API server does not answer.
    """
    answer = api.get(NAMES_PATH)
    return msgspec.convert(answer.body, NamesObject).spec.names if answer.ok else {}
