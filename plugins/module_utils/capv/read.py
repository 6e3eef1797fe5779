# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reading of the objects of a management cluster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..kube.client import ApiClient, Json
from ..kube.objects import ObjectList
from .ownership import CLUSTER_NAME
from .plan import READ_KINDS, Namespace
from .versions import ApiVersions


@dataclass(frozen=True)
class Reading:
    objects: Namespace
    # The lists by their path, for watches.
    lists: dict[str, ObjectList]


def read(
    api: ApiClient, versions: ApiVersions, namespace: str, cluster: str, *, secrets: Iterable[str] = ()
) -> Reading:
    """Read all kinds of a namespace in parallel. Read Secrets only by name and by the label of the cluster."""
    kinds = [kind for kind in READ_KINDS if kind != "Secret" and versions.serves(kind)]
    names = list(dict.fromkeys(secrets))

    def listing(kind: str) -> Json:
        return api.get_or_none(versions.path(kind, namespace)) or {}

    def labelled() -> Json:
        return api.get(versions.path("Secret", namespace), labelSelector=f"{CLUSTER_NAME}={cluster}")

    answers = api.together(
        [
            *((lambda kind=kind: listing(kind)) for kind in kinds),
            labelled,
            *((lambda name=name: api.get_or_none(versions.path("Secret", namespace, name))) for name in names),
        ]
    )
    listed = dict(zip(kinds, answers, strict=False))
    lists = {versions.path(kind, namespace): ObjectList.of(answer) for kind, answer in listed.items()}
    by_kind = {kind: _by_name(kind, answer.get("items") or []) for kind, answer in listed.items()}
    found = [*(answers[len(kinds)].get("items") or []), *(item for item in answers[len(kinds) + 1 :] if item)]
    by_kind["Secret"] = _by_name("Secret", found)
    return Reading(Namespace(by_kind), lists)


def _by_name(kind: str, items: Iterable[Json]) -> dict[str, Json]:
    # Items of a list have no kind.
    return {str(item["metadata"]["name"]): {**item, "kind": kind} for item in items}
