# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan to enable or disable SR-IOV on GPUs, and refuse changes that would break vGPUs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ...errors import FleetError, join_names
from ...fleet.mig import format_instances
from ...fleet.model import Fleet, Gpu
from ...planning.request import GpuSelector, patterns, selected
from ...planning.steps import DISABLE, DISABLE_SRIOV, ENABLE_SRIOV, REMOVE_MIG_INSTANCES, Step
from ..conditions import Condition, SriovDisabled, SriovEnabled
from ..mig_conditions import mig_layouts
from ..read.snapshot import Snapshot
from .in_use import DeviceInUse, check_claims


class GpuBlocked(FleetError):
    code = "gpu_blocked"


class VgpusEnabled(FleetError):
    code = "vgpus_enabled"


class MigInstances(FleetError):
    code = "mig_instances"


@dataclass(frozen=True)
class SriovPlan:
    """The selected GPUs, their steps and wait conditions.

    `functions` are the vGPU devices of each GPU, which disappear when SR-IOV is disabled.
    """

    gpus: tuple[str, ...]
    steps: tuple[Step, ...]
    fleet: Fleet
    enabled: bool
    functions: Mapping[str, frozenset[str]] = field(default_factory=dict, repr=False, compare=False)
    warnings: tuple[str, ...] = ()

    @property
    def touched(self) -> frozenset[str]:
        """Return the names of the GPUs that have steps."""
        return frozenset(step.gpu for step in self.steps)

    @cached_property
    def conditions(self) -> list[Condition]:
        """Return the conditions to wait for on every selected GPU, including GPUs that an earlier run changed."""
        names = set(self.gpus)
        gpus = [gpu for gpu in self.fleet.gpus if gpu.name in names]
        if self.enabled:
            return [SriovEnabled(gpu.name, gpu.node) for gpu in gpus]
        return [SriovDisabled(gpu.name, gpu.node, self.functions.get(gpu.name, frozenset())) for gpu in gpus]

    @cached_property
    def after(self) -> Fleet:
        """Return the fleet after all steps."""
        switched = {step.gpu for step in self.steps if step.action in (ENABLE_SRIOV, DISABLE_SRIOV)}

        def after(gpu: Gpu) -> Gpu:
            if gpu.name not in switched:
                return gpu
            # The virtual functions of a GPU are unknown until SR-IOV is enabled.
            kept: dict[str, Any] = {} if self.enabled else {"slots": (), "vf_capacity": None}
            return replace(gpu, sharing=self.enabled, **kept)

        nodes = tuple(replace(node, gpus=tuple(map(after, node.gpus))) for node in self.fleet.nodes)
        return replace(self.fleet, nodes=nodes)


@dataclass(frozen=True)
class SriovRequest:
    """The request of a task."""

    nodes: Sequence[str] | None
    gpus: Sequence[str] | None
    enabled: bool
    disable_vgpus: bool = False
    remove_mig: bool = False

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> SriovRequest:
        """Read the request from the options of a task."""
        return cls(
            params["nodes"], params["gpus"], params["state"] == "enabled", params["disable_vgpus"], params["remove_mig"]
        )

    def selected(self, fleet: Fleet) -> frozenset[str]:
        """Return the names of the GPUs on which the result of the task depends."""
        return selected(fleet, self.nodes, self.gpus)

    def plan_for(self, fleet: Fleet, snapshot: Snapshot) -> SriovPlan:
        """Plan the request, with its wait conditions."""
        return plan_sriov(
            fleet,
            nodes=self.nodes,
            gpus=self.gpus,
            enabled=self.enabled,
            disable_vgpus=self.disable_vgpus,
            remove_mig=self.remove_mig,
            mig_layouts=mig_layouts(snapshot),
            functions=snapshot.vgpu_names_by_gpu,
        )


def plan_sriov(
    fleet: Fleet,
    *,
    nodes: Sequence[str] | None,
    gpus: Sequence[str] | None,
    enabled: bool,
    disable_vgpus: bool = False,
    remove_mig: bool = False,
    mig_layouts: Mapping[str, str] | None = None,
    functions: Mapping[str, frozenset[str]] | None = None,
) -> SriovPlan:
    """Plan SR-IOV on the selected GPUs.

    `mig_layouts` describes the MIG instances of each GPU that has any. `functions` are the vGPU devices of each GPU.
    """
    chosen = [fleet.gpus[index] for index in sorted(GpuSelector(fleet).gpus(patterns(nodes), patterns(gpus)))]
    if enabled:
        steps = list(_enabling_steps(chosen))
    else:
        steps = _disabling_steps(chosen, mig_layouts or {}, disable_vgpus=disable_vgpus, remove_mig=remove_mig)
    plan = SriovPlan(tuple(gpu.name for gpu in chosen), tuple(steps), fleet, enabled, functions or {})
    if not enabled:
        check_claims(fleet, plan.after, "disable SR-IOV")
    return plan


def _enabling_steps(gpus: Sequence[Gpu]) -> Iterable[Step]:
    changing = [gpu for gpu in gpus if not gpu.sharing]
    blocked = [gpu for gpu in changing if gpu.blocked]
    if blocked:
        raise GpuBlocked(
            f"SR-IOV cannot be enabled on GPU {join_names(gpu.name for gpu in blocked)}: {blocked[0].blocked}.",
            hint="Delete the PCIDeviceClaim of the GPU, or leave the GPU out.",
        )
    return [Step(ENABLE_SRIOV, gpu.node, gpu.name) for gpu in changing]


def _disabling_steps(
    gpus: Sequence[Gpu], mig_layouts: Mapping[str, str], *, disable_vgpus: bool, remove_mig: bool
) -> list[Step]:
    changing = [gpu for gpu in gpus if gpu.sharing]
    held = [slot for gpu in changing for slot in gpu.ordered_slots if slot.holders]
    if held:
        raise DeviceInUse(held, "disable SR-IOV")
    filled = [(gpu, slot) for gpu in changing for slot in gpu.ordered_slots if not slot.empty]
    if filled and not disable_vgpus:
        # Harvester would remove the virtual functions of enabled vGPUs (harvester.md 5.4).
        named = join_names(f"{slot.name} ({slot.profile or slot.wanted})" for _gpu, slot in filled)
        raise VgpusEnabled(
            f"SR-IOV cannot be disabled on GPU {join_names(gpu.name for gpu, _slot in filled)}"
            f" while it has enabled vGPUs: {named}.",
            hint="Disable the vGPUs first, or set disable_vgpus: true. No VM uses them.",
        )
    with_mig = [gpu for gpu in changing if gpu.name in mig_layouts]
    if with_mig and not remove_mig:
        # Harvester deletes the MIG configuration and leaves the instances on the GPU.
        names = join_names(f"{gpu.name} ({mig_layouts[gpu.name]})" for gpu in with_mig)
        raise MigInstances(
            f"SR-IOV cannot be disabled on GPU {names}: its MIG instances would remain, and nothing would show them.",
            hint="Remove them first with vgpu.fleet.harvester_mig and state: disabled, or set remove_mig: true.",
        )
    steps: list[Step] = []
    for gpu in changing:
        steps += [
            Step(DISABLE, gpu.node, gpu.name, slot.name, before=slot.profile or slot.wanted)
            for slot in gpu.ordered_slots
            if not slot.empty
        ]
        if gpu.name in mig_layouts:
            steps.append(
                Step(REMOVE_MIG_INSTANCES, gpu.node, gpu.name, before=mig_layouts[gpu.name], after=format_instances({}))
            )
        steps.append(Step(DISABLE_SRIOV, gpu.node, gpu.name))
    return steps
