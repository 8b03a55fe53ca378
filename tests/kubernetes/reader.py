"""Who follows README.md on the control plane: the lines of its blocks, with kubectl itself; see `Reader`."""

import os
import re
from pathlib import Path

import yaml
from tests.conftest import ROOT
from tests.kubernetes.controlplane import ADMIN, ControlPlane, path_of
from tests.readme.blocks import run

SPACE = "ml"
KEPT = ("Namespace", "CustomResourceDefinition", "AdmissionCheck", "ResourceFlavor")
"""Kinds that other tests rest on."""


class Reader:
    """An administrator in the root of the repository, whose workloads are in namespace `ml`, as in the README."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self._plane, self._folder = plane, folder
        self._made: list[str] = []
        plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})

    def run(self, line: str) -> str:
        """A line as it stands; what it prints."""
        self._made += re.findall(r"-f (\S+)", line)
        config = str(self._plane.kubeconfig(ADMIN))
        path = f"{self._plane.binaries}:{os.environ['PATH']}"
        return run(line, ROOT, KUBECONFIG=config, PATH=path, HOME=str(self._folder), TMPDIR=str(self._folder)).stdout

    def undo(self) -> None:
        """Delete what was applied."""
        self.clear(*reversed(self._made))
        self._plane.request("DELETE", f"/apis/apps/v1/namespaces/{SPACE}/deployments?propagationPolicy=Background")

    def clear(self, *names: str) -> None:
        """Delete the objects of manifests, which other tests may have made otherwise."""
        for name in names:
            for document in yaml.safe_load_all((ROOT / name).read_text()):
                if document and document["kind"] not in KEPT:
                    self._plane.request("DELETE", f"{path_of(document)}?propagationPolicy=Background")
