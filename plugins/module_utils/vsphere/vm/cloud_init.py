# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a guest's cloud-init finds: user data, meta data and addresses, through guestinfo (DataSourceVMware). Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.decide.mark import COMPLETE, STAGE
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.decide.rules import InvalidRequest
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.request import CloneOptions, Network

USER_DATA = "guestinfo.userdata"
META_DATA = "guestinfo.metadata"


def guest_info(name: str, creation: CloneOptions, macs: Sequence[str]) -> dict[str, str]:
    """The options to write; nothing if the task says nothing for the guest. `macs` are those of the cards, in order."""
    addressed = [network for network in creation.networks or () if network.addressed]
    if not creation.user_data and creation.meta_data is None and not addressed:
        return {}
    options = encoded(META_DATA, _meta_data(name, creation, macs, addressed=bool(addressed)))
    if creation.user_data:
        options |= encoded(USER_DATA, creation.user_data)
    return options


def finishing(name: str, creation: CloneOptions, macs: Sequence[str]) -> dict[str, str]:
    """The options that end the creation of a VM, all in one request."""
    return {**guest_info(name, creation, macs), STAGE: COMPLETE}


def needs_macs(creation: CloneOptions) -> bool:
    """Whether addresses can only be written once vSphere has given the cards their MACs."""
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
        # An object of JSON is one of YAML too.
        data.setdefault("network", network_config(creation.networks or (), macs))
    return json.dumps(data, sort_keys=True)


def network_config(networks: Sequence[Network], macs: Sequence[str]) -> dict[str, Any]:
    """Version 2 of cloud-init's network configuration; cards are told apart by their MACs."""
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
