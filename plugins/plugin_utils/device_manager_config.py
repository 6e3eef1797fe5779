# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Conversion of configuration files of NVIDIA's vGPU Device Manager into layouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..module_utils.errors import FleetError, join_names
from ..module_utils.fleet import catalog
from ..module_utils.fleet.profile_resolver import ProfileResolver

CONFIGS = "vgpu-configs"
FIELDS = {"devices", "device-filter", "vgpu-devices"}


class InvalidConfiguration(FleetError):
    code = "invalid_configuration"


def layout_of(
    content: Any, config: str, *, nodes: Sequence[str] | None = None, gpus: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """Return the layout of one configuration: a number of vGPUs of each type on each GPU."""
    configs = content.get(CONFIGS) if isinstance(content, Mapping) else None
    if not isinstance(configs, Mapping):
        raise InvalidConfiguration(
            f"The configuration has no {CONFIGS}.", hint="It needs a version and a mapping of that name."
        )
    if content.get("version", "v1") != "v1":
        raise InvalidConfiguration(f"Unsupported configuration version {content['version']}.", hint="Supported: v1.")
    if config not in configs:
        raise InvalidConfiguration(
            f"Configuration {config!r} does not exist.", hint=f"Existing ones: {join_names(configs)}."
        )
    layout: list[dict[str, Any]] = []
    for entry in configs[config] or []:
        layout += _entries(entry, config, nodes, gpus)
    return layout


def _entries(entry: Any, config: str, nodes: Sequence[str] | None, gpus: Sequence[str] | None) -> list[dict[str, Any]]:
    if not isinstance(entry, Mapping) or not {"devices", "vgpu-devices"} <= set(entry) <= FIELDS:
        raise InvalidConfiguration(
            f"An entry of the configuration {config!r} is not valid.",
            hint="It needs devices and vgpu-devices, and can have a device-filter.",
        )
    counts = entry["vgpu-devices"] or {}
    _check_filter(entry.get("device-filter"), counts, config)
    given = {"nodes": nodes, "gpus": _chosen(entry["devices"], config, gpus)}
    # Omit a selection that was not given, because an empty list selects nothing.
    selection = {option: list(names) for option, names in given.items() if names is not None}
    return [{"profile": str(name), "count": int(count), "per": "gpu", **selection} for name, count in counts.items()]


def _chosen(devices: Any, config: str, gpus: Sequence[str] | None) -> Sequence[str] | None:
    if devices == "all":
        return gpus
    if not isinstance(devices, Sequence) or not all(isinstance(number, int) for number in devices):
        raise InvalidConfiguration(
            f"The devices of the configuration {config!r} are neither 'all' nor a list of numbers."
        )
    names = gpus or ()
    if any(number >= len(names) for number in devices):
        raise InvalidConfiguration(
            f"The configuration {config!r} lists GPUs by number, up to {max(devices)}.",
            hint="Give the names of the GPUs in the order of these numbers: gpus=[...].",
        )
    return [names[number] for number in devices]


def _check_filter(device_filter: Any, counts: Mapping[str, int], config: str) -> None:
    """Check that the boards of a device filter have the types. `0x25B610DE` is device 25b6 of vendor 10de."""
    wanted = [device_filter] if isinstance(device_filter, str) else list(device_filter or ())
    ids = {str(device_id).casefold().removeprefix("0x")[:4] for device_id in wanted}
    known = ProfileResolver()
    for name in counts if ids else ():
        profile = catalog.find_profile(known.resolve(str(name)))
        boards = {board.name for device_id in ids for board in catalog.boards_with_pci_id(device_id)}
        board = next((board for board in boards if profile and profile.name.startswith(f"{_brand(board)}-")), None)
        if profile and boards and board is None:
            raise InvalidConfiguration(
                f"The configuration {config!r} requests {name} on {join_names(boards)}, which does not support it."
            )


def _brand(board: str) -> str:
    found = catalog.find_board(board)
    return found.type_prefix.removesuffix("-") if found else board
