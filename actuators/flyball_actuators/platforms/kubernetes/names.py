"""Reads which namespaces the names of workloads belong to, as the controller has written them."""

import logging
from collections.abc import Mapping

import msgspec

from flyball_actuators.platforms.kubernetes.api import Api
from flyball_contracts.declared.names import NAMES_PATH, NamesObject

_LOG = logging.getLogger(__name__)


def read_names(api: Api) -> Mapping[str, tuple[str, ...]]:
    """Namespaces by name; empty without a controller and, with a warning, if the API server refuses to show them.

    Raises :class:`PlatformError` if it does not answer.
    """
    answer = api.get(NAMES_PATH)
    if not answer.ok and answer.status != 404:
        _LOG.warning("%s; infra/kubernetes/controller.yaml grants it", answer.message or f"HTTP {answer.status}")
    return msgspec.convert(answer.body, NamesObject).spec.names if answer.ok else {}
