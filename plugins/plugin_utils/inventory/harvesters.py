# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Harvester clusters that a Rancher server manages, converted from cluster objects. Pure, except for `read`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from ...module_utils.errors import FleetError
from ...module_utils.kube import connection as access
from ...module_utils.kube.client import ApiClient, NotFound
from ...module_utils.rancher.client import PROXY

Json = dict[str, Any]
Record = dict[str, Any]

CLUSTERS = "/apis/management.cattle.io/v3/clusters"
PROVIDER_LABEL = "provider.cattle.io"
HARVESTER = "harvester"


class NotRancher(FleetError):
    code = "not_rancher"


def front_of(url: str) -> str:
    """Return Rancher's own address, also if the address of one of its APIs was given."""
    base = url.strip().partition(PROXY)[0].rstrip("/")
    for end in ("/v3", "/v1", "/dashboard"):
        base = base.removesuffix(end)
    return base


def read(params: Mapping[str, Any]) -> list[Record]:
    """Read all clusters with one request."""
    front = front_of(str(params["url"]))
    if not urlsplit(front).hostname:
        raise access.BadConnection(
            f"{front!r} is not the address of Rancher.", hint="Write it as https://rancher.example."
        )
    options = {"host": f"{front}{PROXY}local", "api_key": params["token"]}
    options |= {name: params.get(name) for name in ("ca_cert", "validate_certs", "proxy", "no_proxy")}
    try:
        answer = ApiClient(access.from_options(options)).get(CLUSTERS)
    except NotFound as error:
        raise NotRancher(
            f"{front} has no list of clusters, so it is not Rancher.", hint="Check url, or RANCHER_URL."
        ) from error
    return records(answer.get("items") or [])


def records(clusters: Iterable[Json]) -> list[Record]:
    """Return the records of Harvester clusters, sorted by name, without the guest clusters on them."""
    found = [_record(cluster) for cluster in clusters if _provider(cluster) == HARVESTER]
    return sorted(found, key=lambda record: (record["name"], record["id"]))


def _provider(cluster: Json) -> str:
    """Return the provider of a cluster. Until its agent reports, only the label set at the import is known."""
    told = (cluster.get("status") or {}).get("provider")
    return str(told or (cluster["metadata"].get("labels") or {}).get(PROVIDER_LABEL) or "")


def _record(cluster: Json) -> Record:
    identity = str(cluster["metadata"]["name"])
    conditions = (cluster.get("status") or {}).get("conditions") or []
    ready = any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)
    name = str((cluster.get("spec") or {}).get("displayName") or identity)
    return {
        "id": identity,
        "title": f"Harvester {name} ({identity})",
        "key": identity,
        "name": name,
        "ready": ready,
        "labels": dict(sorted((cluster["metadata"].get("labels") or {}).items())),
    }


def variables(record: Record, url: str, ca_cert: str | None) -> Record:
    """Return the connection variables of a cluster for playbooks and roles, without credentials."""
    front = front_of(url)
    found = {
        "rancher_harvester_id": record["id"],
        "rancher_harvester_name": record["name"],
        "rancher_harvester_ready": record["ready"],
        "rancher_harvester_labels": record["labels"],
        "harvester_host": f"{front}{PROXY}{record['id']}",
        "rancher_gpu_cluster_url": front,
        "rancher_gpu_cluster_harvester": record["id"],
        "ansible_connection": "local",
    }
    return {**found, "harvester_ca_cert": ca_cert, "rancher_gpu_cluster_ca_cert": ca_cert} if ca_cert else found
