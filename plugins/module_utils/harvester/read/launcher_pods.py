# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the launcher pods of VMs, which show the devices that a VM really has."""

from __future__ import annotations

from ...kube.client import ApiClient, Forbidden
from ...kube.objects import ObjectList
from .. import paths as r
from .vm_usage import Pods


def read_launcher_pods(api: ApiClient) -> Pods:
    """List the launcher pods of all VMs. For a user without permission to list them, the pods are not readable."""
    try:
        return Pods(ObjectList.of(api.get(r.LAUNCHER_PODS, labelSelector=r.LAUNCHER_SELECTOR)).items)
    except Forbidden:
        return Pods(readable=False)
