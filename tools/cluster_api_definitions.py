"""Write lab/capv/cluster_api_definitions.json: the custom resource definitions of Cluster API, without descriptions.

Cluster API's Go module contains them. The lab serves one version of each definition at a time, since a conversion
between versions would need Cluster API's webhook.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import yaml

MODULE = "sigs.k8s.io/cluster-api"
VERSION = "v1.14.0"
TARGET = Path(__file__).parents[1] / "lab/capv/cluster_api_definitions.json"
VERSIONS = ("v1beta1", "v1beta2")
FILES = (
    "core/config/crd/bases/cluster.x-k8s.io_clusters.yaml",
    "core/config/crd/bases/cluster.x-k8s.io_machinedeployments.yaml",
    "core/config/crd/bases/cluster.x-k8s.io_machinesets.yaml",
    "core/config/crd/bases/cluster.x-k8s.io_machines.yaml",
    "core/config/crd/bases/addons.cluster.x-k8s.io_clusterresourcesets.yaml",
    "bootstrap/kubeadm/config/crd/bases/bootstrap.cluster.x-k8s.io_kubeadmconfigtemplates.yaml",
    "controlplane/kubeadm/config/crd/bases/controlplane.cluster.x-k8s.io_kubeadmcontrolplanes.yaml",
)
# Clusters of a ClusterClass are not part of the lab, and these fields are most of the definition.
OMITTED = {"clusters.cluster.x-k8s.io": "topology"}


def source() -> Path:
    """Download the module, and return its directory."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "go.mod").write_text("module definitions\n")
        answer = subprocess.run(
            ["go", "mod", "download", "-json", f"{MODULE}@{VERSION}"],
            check=True,
            capture_output=True,
            cwd=folder,
            env={**os.environ, "GOFLAGS": "-mod=mod"},
        )
    return Path(json.loads(answer.stdout)["Dir"])


def without_descriptions(node: Any) -> Any:
    """Return a schema without its descriptions. A property may be called description as well."""
    if isinstance(node, dict):
        return {
            key: without_descriptions(value)
            for key, value in node.items()
            if not (key == "description" and isinstance(value, str))
        }
    return [without_descriptions(one) for one in node] if isinstance(node, list) else node


def definition(content: dict[str, Any]) -> dict[str, Any]:
    name, spec = content["metadata"]["name"], content["spec"]
    versions = []
    for version in spec["versions"]:
        if version["name"] not in VERSIONS:
            continue
        if name in OMITTED:
            version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"].pop(OMITTED[name], None)
        versions.append(without_descriptions({key: version[key] for key in ("name", "schema", "subresources")}))
    return {
        "name": name,
        "group": spec["group"],
        "names": spec["names"],
        "scope": spec["scope"],
        "versions": versions,
    }


def main() -> None:
    root = source()
    loaded = [yaml.load((root / file).read_text(), yaml.CSafeLoader) for file in FILES]
    found = {"module": f"{MODULE}@{VERSION}", "definitions": [definition(content) for content in loaded]}
    TARGET.write_text(json.dumps(found, sort_keys=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
