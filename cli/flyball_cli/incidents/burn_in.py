"""A Kubernetes Job that checks one node, and readmits it if the check passes."""

import re
from typing import Any

import yaml

_TIMEOUT_S = 3600


def job_yaml(
    node: str, cell: str, image: str, check: str, flyball_image: str, gpus: int, namespace: str, bootstrap: str
) -> str:
    """The manifest of the Job.

    It requests all GPUs of the node, so nothing else runs on them during the check. ``nodeName`` bypasses the
    scheduler, which does not place on a cordoned node. The check is an init container: the container that readmits the
    node runs only if it ends with status 0.
    """
    name = re.sub(r"[^a-z0-9-]+", "-", f"flyball-check-{node}".lower())[:60].strip("-")
    readmit = [
        "flyball", "incidents", "readmit", node, "--cell", cell, "--evidence", f"{check} passed on {image}",
        "--by", f"job {name}", "--bootstrap", bootstrap,
    ]  # fmt: skip
    job: dict[str, Any] = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"generateName": f"{name}-", "namespace": namespace, "labels": {"app": "flyball-check"}},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": _TIMEOUT_S,
            "ttlSecondsAfterFinished": 86_400,
            "template": {
                "metadata": {"labels": {"app": "flyball-check"}},
                "spec": {
                    "nodeName": node,
                    "restartPolicy": "Never",
                    "tolerations": [{"operator": "Exists"}],
                    "initContainers": [
                        {
                            "name": "check",
                            "image": image,
                            "command": ["sh", "-c", check],
                            "resources": {"limits": {"nvidia.com/gpu": gpus}},
                        }
                    ],
                    "containers": [{"name": "readmit", "image": flyball_image, "command": readmit}],
                },
            },
        },
    }
    return yaml.safe_dump(job, sort_keys=False, width=120)
