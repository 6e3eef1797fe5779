"""Write lab/kubernetes/kubevirt_manifests.json: what the operator of the pinned KubeVirt would install, for a lab.

The definitions come from KubeVirt's own code, which lab/go/cluster/kubevirt-manifests prints. Building that takes
minutes and its output changes only with the pinned version, so the lab reads the file instead.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

from lab.kubernetes import kubevirt
from lab.programs import binaries


def document(printed: dict[str, Any]) -> str:
    """One object in each line, so that a difference shows which one it is."""
    lines = [f'"version": {json.dumps(kubevirt.VERSION)}']
    for key, value in (printed | {"crds": [kubevirt.slim(crd) for crd in printed["crds"]]}).items():
        if isinstance(value, list):
            lines.append(f"{json.dumps(key)}: [\n" + ",\n".join(_line(one) for one in value) + "\n]")
        else:
            lines.append(f"{json.dumps(key)}: {_line(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _line(value: Any) -> str:
    return json.dumps(_without_nulls(value), sort_keys=True, separators=(",", ":"))


def _without_nulls(value: Any) -> Any:
    """Which empty fields are printed as null differs between versions of Kubernetes' libraries."""
    if isinstance(value, dict):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


def main() -> None:
    command = [str(binaries.ensure_manifests()), "--namespace", kubevirt.NAMESPACE]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    kubevirt.MANIFESTS.write_text(document(json.loads(printed)))


if __name__ == "__main__":
    main()
