# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""SR-IOV on and off: which GPUs are meant, what has to be done, and what must not be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.vgpu.fleet.plugins.module_utils.errors import FleetError, join_names
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.mig import format_instances
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import Fleet, Gpu
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.conditions import (
    Condition,
    SriovDisabled,
    SriovEnabled,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.decide.in_use import DeviceInUse, check_claims
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.request import GpuSelector, patterns
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.steps import (
    DISABLE,
    DISABLE_SRIOV,
    ENABLE_SRIOV,
    REMOVE_MIG_INSTANCES,
    Step,
)


class GpuBlocked(FleetError):
    code = "gpu_blocked"


class VgpusEnabled(FleetError):
    code = "vgpus_enabled"


class MigInstances(FleetError):
    code = "mig_instances"


@dataclass(frozen=True)
class SriovPlan:
    """GPUs that were chosen, the steps they need, and the fleet as it will be."""

    gpus: tuple[str, ...]
    steps: tuple[Step, ...]
    fleet: Fleet
    enabled: bool

    def goals(self, functions: Mapping[str, frozenset[str]]) -> list[Condition]:
        """What has to be so in the end, also for GPUs that were asked for it in an earlier run."""
        chosen = [gpu for gpu in self.fleet.gpus if gpu.name in set(self.gpus)]
        if self.enabled:
            return [SriovEnabled(gpu.name, gpu.node) for gpu in chosen]
        return [SriovDisabled(gpu.name, gpu.node, functions.get(gpu.name, frozenset())) for gpu in chosen]

    def outcome(self) -> Fleet:
        switched = {step.gpu for step in self.steps if step.action in (ENABLE_SRIOV, DISABLE_SRIOV)}

        def after(gpu: Gpu) -> Gpu:
            if gpu.name not in switched:
                return gpu
            # Which functions a GPU gets is only known when it has them.
            kept: dict[str, Any] = {} if self.enabled else {"slots": (), "vf_capacity": None}
            return replace(gpu, sharing=self.enabled, **kept)

        nodes = tuple(replace(node, gpus=tuple(map(after, node.gpus))) for node in self.fleet.nodes)
        return replace(self.fleet, nodes=nodes)


def plan_sriov(
    fleet: Fleet,
    *,
    nodes: Sequence[str] | None,
    gpus: Sequence[str] | None,
    enabled: bool,
    disable_vgpus: bool = False,
    remove_mig: bool = False,
    cuts: Mapping[str, str] | None = None,
) -> SriovPlan:
    """`cuts` are the MIG instances of GPUs that have any, in words."""
    chosen = [fleet.gpus[index] for index in sorted(GpuSelector(fleet).gpus(patterns(nodes), patterns(gpus)))]
    if enabled:
        steps = list(_switching_on(chosen))
    else:
        steps = _switching_off(chosen, cuts or {}, disable_vgpus=disable_vgpus, remove_mig=remove_mig)
    plan = SriovPlan(tuple(gpu.name for gpu in chosen), tuple(steps), fleet, enabled)
    if not enabled:
        check_claims(fleet, plan.outcome(), "disable SR-IOV")
    return plan


def _switching_on(gpus: Sequence[Gpu]) -> Iterable[Step]:
    to_do = [gpu for gpu in gpus if not gpu.sharing]
    blocked = [gpu for gpu in to_do if gpu.blocked]
    if blocked:
        raise GpuBlocked(
            f"SR-IOV cannot be enabled on GPU {join_names(gpu.name for gpu in blocked)}: {blocked[0].blocked}.",
            hint="Delete the PCIDeviceClaim of that name, or leave the GPU out.",
        )
    return [Step(ENABLE_SRIOV, gpu.node, gpu.name) for gpu in to_do]


def _switching_off(
    gpus: Sequence[Gpu], cuts: Mapping[str, str], *, disable_vgpus: bool, remove_mig: bool
) -> list[Step]:
    to_do = [gpu for gpu in gpus if gpu.sharing]
    held = [slot for gpu in to_do for slot in gpu.ordered_slots if slot.holders]
    if held:
        raise DeviceInUse(held, "disable SR-IOV")
    filled = [(gpu, slot) for gpu in to_do for slot in gpu.ordered_slots if not slot.empty]
    if filled and not disable_vgpus:
        # Harvester would pull the functions away from under them (harvester.md 5.4).
        named = join_names(f"{slot.name} ({slot.profile or slot.wanted})" for _gpu, slot in filled)
        raise VgpusEnabled(
            f"SR-IOV cannot be disabled on GPU {join_names(gpu.name for gpu, _slot in filled)}"
            f" while it has enabled vGPUs: {named}.",
            hint="Disable them first, or set disable_vgpus: true; no VM refers to them.",
        )
    cut = [gpu for gpu in to_do if gpu.name in cuts]
    if cut and not remove_mig:
        # Harvester deletes the MIG configuration and leaves the instances on the card.
        raise MigInstances(
            f"SR-IOV cannot be disabled on GPU {join_names(f'{gpu.name} ({cuts[gpu.name]})' for gpu in cut)}:"
            " the MIG instances would stay behind on the card, where nothing shows them.",
            hint="Remove them first with vgpu.fleet.harvester_mig and state: disabled, or set remove_mig: true.",
        )
    steps: list[Step] = []
    for gpu in to_do:
        steps += [
            Step(DISABLE, gpu.node, gpu.name, slot.name, before=slot.profile or slot.wanted)
            for slot in gpu.ordered_slots
            if not slot.empty
        ]
        if gpu.name in cuts:
            steps.append(
                Step(REMOVE_MIG_INSTANCES, gpu.node, gpu.name, before=cuts[gpu.name], after=format_instances({}))
            )
        steps.append(Step(DISABLE_SRIOV, gpu.node, gpu.name))
    return steps
