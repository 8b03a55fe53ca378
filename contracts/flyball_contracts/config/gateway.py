"""Configuration of the gateways whose requests the agent counts."""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from flyball_contracts.config.base import Section
from flyball_contracts.config.workload import Name

GatewayKind = Literal["envoy", "inference_extension", "keda_http", "keda_queue", "generic"]
GatewayUrl = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^https?://[^@?#\s/]+(/[^@#\s]*)?$",
        description="a URL without user, like http://127.0.0.1:9901/stats/prometheus?usedonly",
    ),
]


class GatewaySeries(Section, frozen=True, kw_only=True):
    """Which series of a generic gateway's page mean what, each as in :class:`~flyball_contracts.config.Series`.

    Requests that came in are counted by ``arrived``, else they are those that ``ended`` and what is held grew by.
    ``queued`` are held back at the gateway, ``active`` have no answer yet, wherever they are.
    """

    arrived: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    queued: tuple[str, ...] = ()
    active: tuple[str, ...] = ()


class GatewaySettings(Section, frozen=True, kw_only=True):
    """One gateway, router or interceptor in front of workloads, by its Prometheus page, or its JSON for ``keda_queue``.

    ``workloads`` maps values of the label ``label`` to workloads. Series without the label belong to the workload
    where there is only one, and to none of several; a page that has the label nowhere is an error. An empty value
    stands for the whole page, an empty ``label`` for the one that the ``kind`` is known to have. Only one agent may
    ask a gateway; the pages of several replicas of a gateway are gateways of their own, and are added up. A bearer
    token is read anew from ``token_file`` at each question.
    """

    name: Name
    url: GatewayUrl
    kind: GatewayKind = "generic"
    workloads: Annotated[Mapping[str, Name], msgspec.Meta(min_length=1)]
    label: str = ""
    series: GatewaySeries | None = None
    token_file: str = ""
    ca_file: str = ""
