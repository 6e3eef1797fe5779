"""The yardstick: nothing but the PATCHes, GPUs side by side, and one watch until the nodes count them all.

python tests/bench/bare_patches.py KUBECONFIG PATCHES RESOURCE TOTAL (PATCHES: a JSON file of chains of [path, body])
"""

from __future__ import annotations

import json
import ssl
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import urllib3
import yaml

CONNECTIONS = 8
NODES = "/api/v1/nodes"


def connect(kubeconfig: Path) -> tuple[urllib3.PoolManager, str]:
    content = yaml.safe_load(kubeconfig.read_text())
    cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
    context = ssl.create_default_context(cafile=cluster["certificate-authority"])
    context.load_cert_chain(user["client-certificate"], user["client-key"])
    return urllib3.PoolManager(maxsize=CONNECTIONS, ssl_context=context, retries=False), cluster["server"]


def main(kubeconfig: str, patches: str, resource: str, total: str) -> None:
    pool, server = connect(Path(kubeconfig))
    chains: list[list[tuple[str, Any]]] = json.loads(Path(patches).read_text())
    listed = json.loads(pool.request("GET", server + NODES).data)
    counts = {node["metadata"]["name"]: _count(node, resource) for node in listed["items"]}

    def send(chain: list[tuple[str, Any]]) -> None:
        for path, body in chain:
            headers = {"Content-Type": "application/merge-patch+json"}
            answer = pool.request("PATCH", server + path, body=json.dumps(body), headers=headers)
            if answer.status != 200:
                raise RuntimeError(answer.data)

    with ThreadPoolExecutor(CONNECTIONS) as threads:
        list(threads.map(send, chains))
    url = f"{server}{NODES}?watch=1&resourceVersion={listed['metadata']['resourceVersion']}&timeoutSeconds=600"
    pending = b""
    for chunk in pool.request("GET", url, preload_content=False).stream(None):
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            node = json.loads(line)["object"]
            counts[node["metadata"]["name"]] = _count(node, resource)
            if sum(counts.values()) >= int(total):
                return


def _count(node: Any, resource: str) -> int:
    return int(node["status"].get("allocatable", {}).get(resource, "0"))


if __name__ == "__main__":
    main(*sys.argv[1:])
