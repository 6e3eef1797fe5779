# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The address for connecting to a machine, chosen from the addresses that its guest reports. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Interface = Mapping[str, Any]


def interface(
    network: Any, addresses: Iterable[Any], *, mac: Any = None, pod: bool = False, primary: bool = False
) -> dict[str, Any]:
    """Return an interface of a machine. `pod` means that its network is only reachable inside the cluster."""
    return {
        "network": str(network or ""),
        "mac": str(mac or ""),
        "addresses": [str(address) for address in addresses if usable(address)],
        "pod": pod,
        "primary": primary,
    }


def usable(address: Any) -> bool:
    """Return whether an address can identify a machine on a network."""
    try:
        parsed = ipaddress.ip_address(str(address or "").split("%", maxsplit=1)[0])
    except ValueError:
        return False
    return not (parsed.is_link_local or parsed.is_loopback or parsed.is_unspecified or parsed.is_multicast)


def chosen(interfaces: Sequence[Interface], network: str | None = None) -> str | None:
    """Return the address to connect to, or None.

    With `network`, only the addresses on that network count. Otherwise networks that reach beyond the cluster come
    before the pod network, the primary interface before the others, and IPv4 before IPv6.
    """
    candidates = [
        (item["pod"], not item["primary"], ":" in address, place, address)
        for place, item in enumerate(interfaces)
        for address in item["addresses"]
        if not network or item["network"] == network
    ]
    return min(candidates)[-1] if candidates else None


def shown(interfaces: Iterable[Interface]) -> list[dict[str, Any]]:
    """Return interfaces in the form of the host variables."""
    return [{name: item[name] for name in ("network", "mac", "addresses")} for item in interfaces]
