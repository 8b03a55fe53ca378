"""What driver ``autoscaler`` needs on a cluster, from the manifest that is shipped."""

import base64
from pathlib import Path
from typing import Any

import yaml
from tests.actuators.samples import CELL
from tests.brokers.server import LOOPBACK, free_ports
from tests.conftest import ROOT
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.controlplane import AUTOSCALER, ControlPlane

from flyball_contracts.config import PlatformConfig, ScalerConfig

HOST = "flyball-autoscaler.flyball.svc"
MANIFEST = [d for d in yaml.safe_load_all((ROOT / "infra" / "kubernetes" / "autoscaler.yaml").read_text()) if d]
EXAMPLE: dict[str, Any] = next(yaml.safe_load_all((ROOT / "infra" / "examples" / "autoscaler.yaml").read_text()))
ROLE = next(d for d in MANIFEST if d["kind"] == "ClusterRole")


class Ground:
    """The manifest on the cluster; its Service leads to this machine, where the tests run the platform."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.path = plane.certificate("serving", host=HOST)
        (self.port,) = free_ports(1)
        for document in MANIFEST:
            if document["kind"] == "Service":
                spec = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": self.port}]}
                plane.apply({**document, "spec": spec})
            elif document["kind"] == "APIService":
                bundle = base64.b64encode(Path(f"{self.path}.crt").read_bytes()).decode()
                service = {**document["spec"]["service"], "port": self.port}
                plane.apply({**document, "spec": {**document["spec"], "caBundle": bundle, "service": service}})
            elif document["kind"] not in ("Deployment", "ConfigMap"):
                plane.apply(document)

    def entry(self, cluster: Cluster, **changes: Any) -> PlatformConfig:
        """The platform's configuration, with the rights of the manifest."""
        binding = {
            **cluster.binding,
            "metadata": {"name": "flyball-autoscaler", "namespace": cluster.namespace},
            "roleRef": {**cluster.binding["roleRef"], "name": "flyball-autoscaler"},
            "subjects": [{"kind": "ServiceAccount", "name": "flyball-autoscaler", "namespace": "flyball"}],
        }
        self.plane.apply(binding)
        scaler = ScalerConfig(metrics=f"{LOOPBACK}:{self.port}", certificate=f"{self.path}.crt")
        config = str(self.plane.kubeconfig(AUTOSCALER))
        cluster.until(
            lambda: self.plane.request("GET", cluster.deployments(), token=AUTOSCALER)[0] == 200, "the role is bound"
        )
        settings: dict[str, Any] = {
            "cells": (CELL,), "namespaces": (cluster.namespace,), "scaler": scaler, **changes
        }  # fmt: skip
        return PlatformConfig(driver="autoscaler", kubeconfig=config, **settings)
