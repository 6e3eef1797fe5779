# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""User data, metadata and network configuration for cloud-init, passed through guestinfo (DataSourceVMware). Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from .decide.mark import COMPLETE, STAGE
from .decide.rules import InvalidRequest
from .request import CloneOptions, Network

USER_DATA = "guestinfo.userdata"
META_DATA = "guestinfo.metadata"


def guest_info(name: str, creation: CloneOptions, macs: Sequence[str]) -> dict[str, str]:
    """Return the guestinfo options, empty without cloud-init options. `macs` are the MACs of the cards, in order."""
    addressed = [network for network in creation.networks or () if network.addressed]
    if not creation.user_data and creation.meta_data is None and not addressed:
        return {}
    options = encoded(META_DATA, _meta_data(name, creation, macs, addressed=bool(addressed)))
    if creation.user_data:
        options |= encoded(USER_DATA, creation.user_data)
    return options


def finishing(name: str, creation: CloneOptions, macs: Sequence[str]) -> dict[str, str]:
    """Return the options that complete the creation of a VM, for a single request."""
    return {**guest_info(name, creation, macs), STAGE: COMPLETE}


def needs_macs(creation: CloneOptions) -> bool:
    """Return whether the network configuration needs MACs that vSphere assigns to the cards."""
    networks = creation.networks or ()
    return any(network.addressed for network in networks) and not all(network.mac for network in networks)


def encoded(key: str, text: str) -> dict[str, str]:
    return {key: base64.b64encode(text.encode()).decode(), f"{key}.encoding": "base64"}


def _meta_data(name: str, creation: CloneOptions, macs: Sequence[str], *, addressed: bool) -> str:
    given = creation.meta_data
    if isinstance(given, str) and given.strip():
        if addressed:
            raise InvalidRequest(
                "cloud_init.meta_data is text, so the addresses of networks cannot be added to it.",
                hint="Give meta_data as a mapping, or put the addresses into it.",
            )
        return given
    data: dict[str, Any] = {"instance-id": name, "local-hostname": name}
    if isinstance(given, Mapping):
        data |= given
    if addressed:
        # JSON is valid YAML.
        data.setdefault("network", network_config(creation.networks or (), macs))
    return json.dumps(data, sort_keys=True)


def network_config(networks: Sequence[Network], macs: Sequence[str]) -> dict[str, Any]:
    """Return the cloud-init network configuration, version 2. Cards are matched by MAC."""
    cards = {}
    for number, (network, mac) in enumerate(zip(networks, macs, strict=False)):
        card: dict[str, Any] = {"match": {"macaddress": mac}}
        card["dhcp4"] = network.dhcp4 or not network.ip
        if network.ip:
            card["addresses"] = list(network.ip)
        if network.gateway:
            card["routes"] = [{"to": "0.0.0.0/0" if ":" not in network.gateway else "::/0", "via": network.gateway}]
        if network.dns:
            card["nameservers"] = {"addresses": list(network.dns)}
        cards[f"id{number}"] = card
    return {"version": 2, "ethernets": cards}
