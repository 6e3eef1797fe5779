# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options for the devices of machines on vSphere, shared by the modules that take them."""

from __future__ import annotations

from typing import Any


def device_spec() -> dict[str, dict[str, Any]]:
    """Return the options `vgpus` and `pci_devices` of one machine, or of a group of equal machines."""
    count = {"type": "int", "default": 1}
    vgpu = {"profile": {"type": "str", "required": True}, "count": count}
    pci_device = {
        "vendor_id": {"type": "str", "required": True},
        "device_id": {"type": "str", "required": True},
        "custom_label": {"type": "str"},
        "count": count,
    }
    return {
        "vgpus": {"type": "list", "elements": "dict", "options": vgpu},
        "pci_devices": {"type": "list", "elements": "dict", "options": pci_device},
    }
