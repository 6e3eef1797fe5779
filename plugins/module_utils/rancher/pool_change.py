# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine pool brought to what a task says: checked against the Harvester, written, and waited for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ansible_collections.vgpu.fleet.plugins.module_utils.errors import FleetError
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import vm_rules
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.api import Conflict, Json, NotFound
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.cluster import Cluster
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.observation import Observation
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.records import spellings
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.snapshot import Listing, Snapshot
from ansible_collections.vgpu.fleet.plugins.module_utils.rancher import pool as pools
from ansible_collections.vgpu.fleet.plugins.module_utils.rancher.fit import PoolDemand, refuse_what_does_not_fit
from ansible_collections.vgpu.fleet.plugins.module_utils.rancher.pool import Change, Pool, Wish
from ansible_collections.vgpu.fleet.plugins.module_utils.rancher.rancher import (
    Rancher,
    Reading,
    clusters_path,
    configs_path,
    deployments_path,
    machines_path,
    pool_entries,
    vm_of,
)

ATTEMPTS = 10
READY = "Running"


class PoolTimeout(FleetError):
    code = "timeout"
    changed = True


@dataclass(frozen=True)
class Target:
    """Which pool a task is about."""

    cluster: str
    name: str
    harvester: str | None = None


@dataclass
class Outcome:
    change: Change
    record: Json
    warnings: list[str] = field(default_factory=list)
    replaced: bool = False
    diff: Json = field(default_factory=dict)

    def as_result(self) -> Json:
        return {
            "changed": self.change.changed,
            "pool": self.record,
            "machines_replaced": self.replaced,
            "diff": self.diff,
        }


class PoolChange:
    def __init__(self, rancher: Rancher, target: Target, *, wait: bool, seconds: float) -> None:
        self._rancher = rancher
        self._target = target
        self._wait = wait
        self._seconds = seconds
        self._warnings: list[str] = []
        self._reading = rancher.read()
        self._cluster = rancher.find(self._reading, target.cluster)

    # What the Harvester says is asked for only where vGPUs are at stake.
    @cached_property
    def _harvester_cluster(self) -> Cluster:
        return self._rancher.harvester(self._cluster, self._target.harvester)

    @property
    def _harvester(self) -> Snapshot:
        return self._harvester_cluster.snapshot

    def ensure(self, wish: Wish, vgpus: Sequence[Mapping[str, Any]] | None, *, check_mode: bool) -> Outcome:
        pools.check(self._target.name, wish)
        wish = self._with_resources(wish, vgpus)
        change = self._planned(wish)
        if change.changed:
            self._judge(change, check_mode=check_mode)
        outcome = self._outcome(change)
        leaving = self._names() if change.rolls else frozenset()
        if change.changed and not check_mode:
            self._write(change, wish)
            self._reading = self._rancher.read()
            outcome.record = self._record(change.after)
        if self._wait and not check_mode and change.after is not None:
            self._until_ready(change.after, leaving)
            outcome.record = self._record(change.after)
        return outcome

    def remove(self, *, check_mode: bool) -> Outcome:
        before, others = self._found()
        change = pools.remove(before, others)
        outcome = self._outcome(change)
        if change.changed and not check_mode:
            self._write(change, None)
            if self._wait:
                self._until_gone()
        return outcome

    # Deciding
    def _found(self) -> tuple[Pool | None, list[Pool]]:
        everyone = self._reading.pools(self._cluster)
        mine = [one for one in everyone if one.name == self._target.name]
        return (mine[0] if mine else None), [one for one in everyone if one.name != self._target.name]

    def _with_resources(self, wish: Wish, vgpus: Sequence[Mapping[str, Any]] | None) -> Wish:
        if vgpus is None:
            return wish
        counts: Counter[str] = Counter()
        for vgpu in vgpus:
            if vgpu["count"] < 1:
                raise pools.InvalidPool(
                    f"{vgpu['profile']} is asked for with count {vgpu['count']}.",
                    hint="Use 1 or more, or leave it out.",
                )
            counts[self._harvester.era.resource(self._harvester.known.resolve(vgpu["profile"]))] += vgpu["count"]
        return Wish(**{**vars(wish), "vgpus": counts})

    def _planned(self, wish: Wish) -> Change:
        before, others = self._found()
        config_name = f"nc-{self._target.cluster}-{self._target.name}"
        change = pools.plan(self._target.name, config_name, before, wish)
        if before is not None and change.after is not None and _loses_role(before, change.after):
            pools.refuse_to_lose_a_role(before, others)
        return change

    def _judge(self, change: Change, *, check_mode: bool) -> None:
        """Refuse what Harvester has no room for, once GPUs that are still changing have settled."""
        if change.after is None or not change.after.resources:
            return
        self._harvester_cluster.plan(
            lambda harvester: self._refuse_what_has_no_room(change, harvester.snapshot),
            concerned=lambda harvester: harvester.snapshot.gpus.items,
            check_mode=check_mode,
            seconds=self._seconds,
            watch=False,
            until_counted=True,
        )

    def _refuse_what_has_no_room(self, change: Change, harvester: Snapshot) -> None:
        after = change.after
        if after is None or not after.resources:
            return
        label = f"{self._target.cluster}/{after.name}"
        vgpus = self._profiles(after.resources)
        grows = change.before is None or self._profiles(change.before.resources) != vgpus
        if grows:
            vm_rules.refuse_what_cannot_boot(label, vgpus)
            self._refuse_what_the_driver_cannot_do(label, vgpus)
            vm_rules.refuse_what_no_node_has(label, vgpus, harvester.fleet)
        if grows or change.rolls or (change.before is not None and after.quantity > change.before.quantity):
            wanted = self._demand(self._cluster, after, present=change.before)
            refuse_what_does_not_fit(harvester.fleet, self._other_demands(), wanted, rolls=change.rolls)

    def _refuse_what_the_driver_cannot_do(self, label: str, vgpus: Mapping[str, int]) -> None:
        if sum(vgpus.values()) > 1 and not self._harvester.era.vendor_vfio:
            raise vm_rules.CannotBoot(
                f"Machines of pool {label} cannot have {sum(vgpus.values())} vGPUs on Harvester {self._harvester.era}:"
                " Rancher's machine driver gives each of them a boot display, and a VM with two does not start.",
                hint="Use one larger vGPU, or Harvester 1.8 or newer.",
            )

    def _profiles(self, resources: Mapping[str, int]) -> dict[str, int]:
        counts: dict[str, int] = {}
        for resource, count in resources.items():
            name = self._harvester.known.by_resource(resource) or resource
            counts[name] = counts.get(name, 0) + count
        return counts

    def _demand(self, cluster: Json, pool: Pool, present: Pool | None = None) -> PoolDemand:
        """Its machines are where the pool has put them, which may not be where new ones go."""
        namespace = (present or pool).config.vm_namespace
        machines = [f"{namespace}/{vm_of(one)}" for one in self._reading.machines_of(cluster, pool.name)]
        return PoolDemand(
            name=f"{cluster['metadata']['name']}/{pool.name}",
            quantity=pool.quantity,
            vgpus=self._profiles(pool.resources),
            machines=tuple(path for path in machines if path in self._harvester.vms.items),
            limits=pool.limits,
        )

    def _other_demands(self) -> list[PoolDemand]:
        """All other pools on this Harvester, also of other clusters; those of which it is not known count too."""
        here = self._target.harvester or self._rancher.harvester_of(self._cluster)
        found = []
        for cluster in self._reading.clusters.items.values():
            own = cluster["metadata"]["name"] == self._target.cluster
            if not own and here and self._rancher.harvester_of(cluster) not in (None, here):
                continue
            found += [
                self._demand(cluster, pool)
                for pool in self._reading.pools(cluster)
                if pool.resources and not (own and pool.name == self._target.name)
            ]
        return found

    def _names(self) -> frozenset[str]:
        machines = self._reading.machines_of(self._cluster, self._target.name)
        return frozenset(one["metadata"]["name"] for one in machines)

    # Telling
    def _outcome(self, change: Change) -> Outcome:
        machines = self._reading.machines_of(self._cluster, self._target.name)
        replaced = change.rolls and bool(machines)
        if change.before is not None and change.after is not None:
            self._doubt(change, change.after)
        return Outcome(
            change,
            self._record(change.after),
            self._warnings,
            replaced,
            self._diff(change, [one["metadata"]["name"] for one in machines] if replaced else []),
        )

    def _doubt(self, change: Change, after: Pool) -> None:
        names = [one.name for one in after.config.requests] if after.resources else []
        if len(set(names)) != len(names):
            self._warnings.append(
                f"Pool {self._target.name} requests several vGPUs by one name, and a VM with two devices of one name"
                " does not start. Change the pool's vgpus to have them named anew."
            )
        if change.rolls and self._reading.machines_of(self._cluster, self._target.name):
            self._warnings.append(f"Rancher replaces all machines of pool {self._target.name}.")

    def _diff(self, change: Change, replaced: list[str]) -> Json:
        if not change.changed:
            return {}
        before = self._described(change.before)
        after = self._described(change.after)
        shown = [key for key in {**before, **after} if before.get(key) != after.get(key)]
        result: Json = {
            "before": {key: before[key] for key in shown if key in before},
            "after": {key: after[key] for key in shown if key in after},
        }
        if "userData" in change.config and change.before is not None:
            result["before"]["user_data"], result["after"]["user_data"] = "(not shown)", "(not shown, different)"
        if replaced:
            result["before"]["machines"] = replaced
            result["after"]["machines"] = [f"{name} will be replaced" for name in replaced]
        return result

    def _described(self, pool: Pool | None) -> Json:
        if pool is None:
            return {}
        return {**pool.as_dict(), "vgpus": self._vgpu_records(pool)}

    def _vgpu_records(self, pool: Pool) -> list[Json]:
        if not pool.resources:
            return []
        return [
            {"profile": profile, "count": count, "spellings": spellings(profile, self._harvester.era)}
            for profile, count in sorted(self._profiles(pool.resources).items())
        ]

    def _record(self, pool: Pool | None) -> Json:
        known = {"cluster": self._target.cluster, "namespace": self._rancher.namespace, "name": self._target.name}
        machines = [] if pool is None else self._reading.machines_of(self._cluster, self._target.name)
        return {
            **known,
            **self._described(pool),
            "machines": [
                {
                    "name": one["metadata"]["name"],
                    "vm": vm_of(one),
                    "phase": (one.get("status") or {}).get("phase") or "Pending",
                }
                for one in machines
            ],
        }

    # Writing
    def _write(self, change: Change, wish: Wish | None) -> None:
        """A new config before the pool that names it; limits of a replacement before the change that causes it."""
        if change.before is None and change.after is not None:
            self._make_config(change.after.config_name, change.config)
        change = self._write_entry(change, wish)
        if change.before is not None and change.config:
            self._rancher.api.patch(self._config_path(change.before.config_name), dict(change.config))
        if change.after is None and change.before is not None:
            self._drop_config(change.before.config_name)

    def _config_path(self, name: str) -> str:
        return f"{configs_path(self._rancher.namespace)}/{name}"

    def _make_config(self, name: str, config: Mapping[str, Any]) -> None:
        body = {
            "apiVersion": "rke-machine-config.cattle.io/v1",
            "kind": "HarvesterConfig",
            "metadata": {"name": name, "namespace": self._rancher.namespace},
            **{key: value for key, value in config.items() if value != ""},
        }
        try:
            self._rancher.api.post(configs_path(self._rancher.namespace), body)
        except Conflict:
            # Left by a run that did not get to the pool.
            left = self._rancher.api.get(self._config_path(name))
            self._rancher.api.put(self._config_path(name), {**body, "metadata": left["metadata"]})

    def _write_entry(self, change: Change, wish: Wish | None) -> Change:
        for _attempt in range(ATTEMPTS):
            if not change.entry_changed:
                return change
            entries = [one for one in pool_entries(self._cluster) if one.get("name") != self._target.name]
            position = next(
                (i for i, one in enumerate(pool_entries(self._cluster)) if one.get("name") == self._target.name),
                len(entries),
            )
            if change.after is not None:
                entries.insert(position, dict(change.after.entry))
            patch = {
                "metadata": {"resourceVersion": self._cluster["metadata"]["resourceVersion"]},
                "spec": {"rkeConfig": {"machinePools": entries}},
            }
            try:
                path = f"{clusters_path(self._rancher.namespace)}/{self._target.cluster}"
                self._cluster = self._rancher.api.patch(path, patch)
                return change
            except Conflict:
                self._reading = self._rancher.read()
                self._cluster = self._rancher.find(self._reading, self._target.cluster)
                change = self._planned(wish) if wish is not None else pools.remove(*self._found())
        raise Conflict(
            f"Cluster {self._target.cluster} changes faster than it can be written.", status=409, hint="Run it again."
        )

    def _drop_config(self, name: str) -> None:
        used = any(
            (entry.get("machineConfigRef") or {}).get("name") == name
            for cluster in self._rancher.read().clusters.items.values()
            for entry in pool_entries(cluster)
        )
        if name and not used:
            try:
                self._rancher.api.delete(self._config_path(name))
            except NotFound:
                return

    # Waiting
    def _observed(self) -> dict[str, Listing]:
        namespace = self._rancher.namespace
        paths = (machines_path(namespace), deployments_path(namespace))
        answers = self._rancher.api.together([lambda path=path: self._rancher.api.get(path) for path in paths])
        return {path: Listing.of(answer) for path, answer in zip(paths, answers, strict=True)}

    def _until_ready(self, after: Pool, leaving: frozenset[str]) -> None:
        """All machines are nodes and of the latest make. Rancher may need a moment to see that others have to go."""
        quantity, namespace = after.quantity, self._rancher.namespace
        deployment = f"{namespace}/{self._target.cluster}-{self._target.name}"
        with Observation(self._rancher.api, self._observed(), seconds=self._seconds) as seen:

            def ready() -> bool:
                there = seen.items(machines_path(namespace))
                if any(f"{namespace}/{name}" in there for name in leaving):
                    return False
                if not quantity:
                    return True
                found = seen.get(deployments_path(namespace), deployment) or {}
                status = found.get("status") or {}
                if status.get("observedGeneration", 1 << 62) < (found.get("metadata") or {}).get("generation", 0):
                    return False
                counts = [status.get(key, 0) for key in ("replicas", "updatedReplicas", "readyReplicas")]
                return (found.get("spec") or {}).get("replicas") == quantity and counts == [quantity] * 3

            done = seen.until(ready)
            self._reading = Reading(
                self._reading.clusters, self._reading.configs, seen.listing(machines_path(namespace))
            )
        if not done:
            raise self._not_ready(quantity)

    def _not_ready(self, quantity: int) -> PoolTimeout:
        machines = self._reading.machines_of(self._cluster, self._target.name)
        waiting = [one for one in machines if (one.get("status") or {}).get("phase") != READY]
        unscheduled = self._rancher.unscheduled(self._cluster, self._target.harvester) if waiting else {}
        # Those that lack something first: the others may just need more time.
        waiting.sort(key=lambda one: self._vm_path(one) not in unscheduled)
        said = "; ".join(self._trouble(one, unscheduled) for one in waiting[:3])
        ready = len(machines) - len(waiting)
        return PoolTimeout(
            f"Pool {self._target.name} of cluster {self._target.cluster} has {ready} of {quantity} machines ready after"
            f" {self._seconds:.0f} s: {said or 'Rancher has not made all of them yet'}.",
            hint="See what is free with vgpu.fleet.vgpu_availability; Rancher goes on trying.",
        )

    def _vm_path(self, machine: Json) -> str:
        found = self._found()[0]
        return f"{found.config.vm_namespace if found else ''}/{vm_of(machine)}"

    def _trouble(self, machine: Json, unscheduled: Mapping[str, str]) -> str:
        """Which VM, and what it waits for, in the words of whoever knows best."""
        status, path = machine.get("status") or {}, self._vm_path(machine)
        if path in unscheduled:
            return f"VM {path} cannot start: {unscheduled[path]}"
        for one in status.get("conditions") or []:
            if one.get("status") == "False" and one.get("message"):
                return f"machine {machine['metadata']['name']}: {one['message'].rstrip('.')}"
        return f"machine {machine['metadata']['name']} is {status.get('phase') or 'Pending'}"

    def _until_gone(self) -> None:
        with Observation(self._rancher.api, self._observed(), seconds=self._seconds) as seen:

            def left() -> list[Json]:
                path = machines_path(self._rancher.namespace)
                labels = [one["metadata"].get("labels") or {} for one in seen.items(path).values()]
                mine = (self._target.cluster, self._target.name)
                keys = ("cluster.x-k8s.io/cluster-name", "rke.cattle.io/rke-machine-pool-name")
                return [one for one in labels if tuple(one.get(key) for key in keys) == mine]

            if not seen.until(lambda: not left()):
                raise PoolTimeout(
                    f"Pool {self._target.name} of cluster {self._target.cluster} still has {len(left())} machines"
                    f" {self._seconds:.0f} s after its removal.",
                    hint="Rancher goes on removing them: see the machines in its cluster page.",
                )


def _loses_role(before: Pool, after: Pool) -> bool:
    gone = set(before.roles) - set(after.roles)
    return bool(gone & {"etcd", "control_plane"}) or (before.quantity > 0 and after.quantity == 0)
