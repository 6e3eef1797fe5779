# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Apply the request for a machine pool: check it against Harvester, write it and wait for the machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from ..errors import FleetError, join_names
from ..fleet.profile import large_compute
from ..harvester.cluster import Cluster
from ..harvester.read.snapshot import Snapshot
from ..harvester.result.records import spellings
from ..harvester.settled_plan import plan_when_settled
from ..harvester.vm import rules as vm_rules
from ..kube.client import Conflict, Json, NotFound
from ..kube.objects import ObjectList
from ..kube.watcher import Watcher
from . import ownership, pool as pools
from .client import (
    Rancher,
    RancherSnapshot,
    clusters_path,
    configs_path,
    credential_reference,
    deployments_path,
    is_deployment_of,
    machines_path,
    vm_of,
)
from .compatibility import version_warning
from .machine_driver import refuse_several_vgpus
from .ownership import Reference, pool_entries
from .pool import Change, Pool, PoolRequest
from .rollout import PoolDemand, refuse_what_does_not_fit

ATTEMPTS = 10
READY = "Running"


class PoolTimeout(FleetError):
    code = "timeout"
    changed = True


@dataclass(frozen=True)
class PoolRef:
    """The machine pool of a task."""

    cluster: str
    name: str
    harvester: str | None = None
    # The owner mark of new machine configs.
    owner: str = ownership.COLLECTION
    # Whether to accept several vGPUs per machine if the machine driver is unknown.
    allow_multiple_vgpus: bool = False

    @property
    def reference(self) -> Reference:
        return Reference(self.cluster, self.name)


@dataclass
class PoolResult:
    change: Change
    record: Json
    warnings: list[str] = field(default_factory=list)
    replaced: list[Json] = field(default_factory=list)
    diff: Json = field(default_factory=dict)

    def as_result(self) -> Json:
        return {
            "changed": self.change.changed,
            "pool": self.record,
            "machines_replaced": self.replaced,
            "diff": self.diff,
        }


class PoolChange:
    def __init__(self, rancher: Rancher, target: PoolRef, *, wait: bool, seconds: float) -> None:
        self._rancher = rancher
        self._target = target
        self._wait = wait
        self._seconds = seconds
        self._warnings: list[str] = []
        self._made_config = ""
        self._reading = rancher.read()
        self._cluster = rancher.find(self._reading, target.cluster)

    # Read Harvester only if the pool has vGPUs.
    @cached_property
    def _harvester_cluster(self) -> Cluster:
        entry, named = self._entry, self._target.harvester
        found = self._rancher.harvester_of(self._cluster, entry) if named else None
        if found and found != named:
            raise pools.InvalidPool(
                f"harvester_cluster is {named}, and the cloud credential {credential_reference(self._cluster, entry)}"
                f" of pool {self._target.name} is for Harvester {found}: Rancher creates its machines there.",
                hint="Leave harvester_cluster out, or set it to that id.",
            )
        return self._rancher.harvester(self._cluster, entry, named)

    @property
    def _entry(self) -> Json:
        """Return the pool's entry in the cluster, or an empty entry if the pool does not exist yet."""
        return next((entry for entry in pool_entries(self._cluster) if entry.get("name") == self._target.name), {})

    @property
    def _harvester(self) -> Snapshot:
        return self._harvester_cluster.snapshot

    def ensure(
        self, request: PoolRequest, vgpus: Sequence[Mapping[str, Any]] | None, *, check_mode: bool
    ) -> PoolResult:
        pools.check(self._target.name, request)
        if not ownership.LABEL_VALUE.fullmatch(self._target.owner):
            raise pools.InvalidPool(
                f"owner {self._target.owner!r} is no value for a label.",
                hint="Use up to 63 letters, digits, hyphens, underscores and dots.",
            )
        request = self._with_resources(request, vgpus)
        change = self._planned(request)
        if change.changed:
            self._judge(change, check_mode=check_mode)
        result = self._result(change)
        leaving = self._names() if change.rolls else frozenset()
        if change.changed and not check_mode:
            change = self._write(change, request)
            self._reading = self._rancher.read()
            result.record = self._record(change.after)
        if self._wait and not check_mode and change.after is not None:
            self._until_ready(change.after, leaving)
            result.record = self._record(change.after)
        return result

    def remove(self, *, check_mode: bool) -> PoolResult:
        before, others = self._found()
        change = pools.remove(before, others)
        result = self._result(change)
        if before is not None and (reason := self._stays_because(self._reading, before.config_name)):
            self._warnings.append(f"HarvesterConfig {before.config_name} stays: {reason}.")
        if change.changed and not check_mode:
            self._write(change, None)
            if self._wait:
                self._until_gone()
        return result

    # Planning
    def _found(self) -> tuple[Pool | None, list[Pool]]:
        everyone = self._reading.pools(self._cluster)
        mine = [pool for pool in everyone if pool.name == self._target.name]
        return (mine[0] if mine else None), [pool for pool in everyone if pool.name != self._target.name]

    def _with_resources(self, request: PoolRequest, vgpus: Sequence[Mapping[str, Any]] | None) -> PoolRequest:
        if vgpus is None:
            return request
        counts: Counter[str] = Counter()
        for vgpu in vgpus:
            if vgpu["count"] < 1:
                raise pools.InvalidPool(
                    f"{vgpu['profile']} is asked for with count {vgpu['count']}.",
                    hint="Use 1 or more, or leave it out.",
                )
            counts[self._harvester.version.resource(self._harvester.known.resolve(vgpu["profile"]))] += vgpu["count"]
        request = PoolRequest(**{**vars(request), "vgpus": counts})
        return pools.with_firmware(request, new=not self._entry, version=self._harvester.version)

    def _planned(self, request: PoolRequest) -> Change:
        before, others = self._found()
        change = pools.plan(self._target.name, before, request, shared=before is not None and self._is_shared(before))
        if before is not None and change.after is not None and _loses_role(before, change.after):
            pools.refuse_to_lose_a_role(before, others)
        return change

    def _config(self, name: str) -> Json | None:
        return self._reading.configs.items.get(f"{self._rancher.namespace}/{name}")

    def _is_shared(self, pool: Pool) -> bool:
        config = self._config(pool.config_name)
        clusters = self._reading.clusters.items.values()
        return config is not None and ownership.is_shared(clusters, config, self._target.reference)

    def _replaced(self, change: Change) -> list[Json]:
        """Return every pool whose machines Rancher replaces, with its current machines."""
        rolling = {self._target.reference} if change.rolls else set()
        if change.before is not None and change.config and not change.new_config:
            rolling |= ownership.references(self._reading.clusters.items.values(), change.before.config_name)
        found = []
        for reference in sorted(rolling):
            cluster = self._rancher.find(self._reading, reference.cluster)
            machines = [machine["metadata"]["name"] for machine in self._reading.machines_of(cluster, reference.pool)]
            if machines:
                found.append({"cluster": reference.cluster, "pool": reference.pool, "machines": machines})
        return found

    def _judge(self, change: Change, *, check_mode: bool) -> None:
        """Refuse a change that does not fit on Harvester, once GPUs that are still changing have settled."""
        if change.after is None or not change.after.resources:
            return
        if warning := version_warning(self._rancher.version()):
            self._warnings.append(warning)
        plan_when_settled(
            self._harvester_cluster,
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
        more = change.before is not None and after.quantity > change.before.quantity
        if grows:
            vm_rules.refuse_what_cannot_boot(label, vgpus)
        if grows or change.rolls or more:
            self._refuse_what_the_driver_cannot_do(label, sum(vgpus.values()), harvester)
        if grows:
            vm_rules.refuse_what_no_node_has(label, vgpus, harvester.fleet)
        if grows or change.rolls or more:
            wanted = self._demand(self._cluster, after, present=change.before)
            refuse_what_does_not_fit(harvester.fleet, self._other_demands(), wanted, rolls=change.rolls)

    def _refuse_what_the_driver_cannot_do(self, label: str, count: int, harvester: Snapshot) -> None:
        """Refuse several vGPUs that the driver does not support, even if the pool only grows or is replaced.

        After an upgrade of Harvester its machines might not start again.
        """
        if count > 1:
            driver = self._rancher.machine_driver()
            allowed = self._target.allow_multiple_vgpus
            refuse_several_vgpus(label, count, harvester.version, driver, allow_unknown=allowed)

    def _profiles(self, resources: Mapping[str, int]) -> dict[str, int]:
        counts: dict[str, int] = {}
        for resource, count in resources.items():
            name = self._harvester.known.by_resource(resource) or resource
            counts[name] = counts.get(name, 0) + count
        return counts

    def _demand(self, cluster: Json, pool: Pool, present: Pool | None = None) -> PoolDemand:
        """Return the demand of a pool. Its machines are in their current namespace, which may differ for new ones."""
        namespace = (present or pool).config.vm_namespace
        machines = [f"{namespace}/{vm_of(machine)}" for machine in self._reading.machines_of(cluster, pool.name)]
        return PoolDemand(
            name=f"{cluster['metadata']['name']}/{pool.name}",
            quantity=pool.quantity,
            vgpus=self._profiles(pool.resources),
            machines=tuple(path for path in machines if path in self._harvester.vms.items),
            limits=pool.limits,
        )

    def _other_demands(self) -> list[PoolDemand]:
        """Return the demands of all other pools on this Harvester, of any cluster, or on an unknown Harvester."""
        here = self._target.harvester or self._rancher.harvester_of(self._cluster, self._entry)
        found = []
        for cluster in self._reading.clusters.items.values():
            own = cluster["metadata"]["name"] == self._target.cluster
            for pool in self._reading.pools(cluster):
                if not pool.resources or (own and pool.name == self._target.name):
                    continue
                if not here or self._rancher.harvester_of(cluster, dict(pool.entry)) in (None, here):
                    found.append(self._demand(cluster, pool))
        return found

    def _names(self) -> frozenset[str]:
        machines = self._reading.machines_of(self._cluster, self._target.name)
        return frozenset(machine["metadata"]["name"] for machine in machines)

    # Result
    def _result(self, change: Change) -> PoolResult:
        replaced = self._replaced(change)
        if change.before is not None and change.after is not None:
            self._doubt(change, change.before, change.after)
        self._warnings += [f"Rancher replaces all machines of pool {replacement['pool']}." for replacement in replaced]
        return PoolResult(change, self._record(change.after), self._warnings, replaced, self._diff(change, replaced))

    def _doubt(self, change: Change, before: Pool, after: Pool) -> None:
        names = [request.name for request in after.config.requests] if after.resources else []
        if len(set(names)) != len(names):
            self._warnings.append(
                f"Pool {self._target.name} requests several vGPUs by one name, and a VM with two devices of one name"
                " does not start. Change the pool's vgpus to have them named anew."
            )
        large = large_compute(after.resources)
        if large and not after.config.efi and self._harvester.version.efi_for_large_gpus:
            self._warnings.append(
                f"The machines of pool {self._target.name} boot with BIOS, and {join_names(large)} may need EFI. If the"
                " driver of the guests does not find the vGPUs and the image supports EFI, set efi: true."
            )
        if change.new_config:
            config = self._config(before.config_name) or {"metadata": {"name": before.config_name}}
            clusters = self._reading.clusters.items.values()
            others = {str(reference) for reference in ownership.references(clusters, before.config_name)}
            users = (others | ownership.owning_clusters(config)) - {str(self._target.reference), self._target.cluster}
            self._warnings.append(
                f"Pool {self._target.name} shares HarvesterConfig {before.config_name} with {join_names(sorted(users))}"
                ", so it gets one of its own. The shared one is not changed."
            )

    def _diff(self, change: Change, replaced: list[Json]) -> Json:
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
            result["before"]["machines"] = {
                f"{replacement['cluster']}/{replacement['pool']}": replacement["machines"] for replacement in replaced
            }
            result["after"]["machines"] = {
                f"{replacement['cluster']}/{replacement['pool']}": [
                    f"{name} will be replaced" for name in replacement["machines"]
                ]
                for replacement in replaced
            }
        return result

    def _described(self, pool: Pool | None) -> Json:
        if pool is None:
            return {}
        return {**pool.as_dict(), "vgpus": self._vgpu_records(pool)}

    def _vgpu_records(self, pool: Pool) -> list[Json]:
        if not pool.resources:
            return []
        return [
            {"profile": profile, "count": count, "spellings": spellings(profile, self._harvester.version)}
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
                    "name": machine["metadata"]["name"],
                    "vm": vm_of(machine),
                    "phase": (machine.get("status") or {}).get("phase") or "Pending",
                }
                for machine in machines
            ],
        }

    # Writing
    def _write(self, change: Change, request: PoolRequest | None) -> Change:
        """Write the change and return it. After a conflict, read again and plan the change again."""
        for _attempt in range(ATTEMPTS):
            try:
                change = self._write_once(change)
                break
            except Conflict:
                self._reading = self._rancher.read()
                self._cluster = self._rancher.find(self._reading, self._target.cluster)
                change = self._planned(request) if request is not None else pools.remove(*self._found())
        else:
            raise Conflict(
                f"Cluster {self._target.cluster} changes faster than it can be written.",
                status=409,
                hint="Run it again.",
            )
        if self._made_config and (change.after is None or change.after.config_name != self._made_config):
            # Another user has created the pool in the meantime.
            self._drop_config(self._made_config)
        return change

    def _write_once(self, change: Change) -> Change:
        """Write a new config before the pool that names it, and rollout limits before the change that needs them."""
        if change.new_config:
            self._made_config = self._make_config(change)
            change = change.with_config(self._made_config)
        if change.entry_changed:
            self._write_entry(change)
        if change.before is not None and change.config and not change.new_config:
            self._write_config(change.before, change.config)
        if change.after is None and change.before is not None:
            self._drop_config(change.before.config_name)
        return change

    def _config_path(self, name: str) -> str:
        return f"{configs_path(self._rancher.namespace)}/{name}"

    def _make_config(self, change: Change) -> str:
        """Create a machine config and return its name, which the API server generates as for Rancher's own UI."""
        content = change.config_content
        clusters, configs = self._reading.clusters.items, self._reading.configs.items
        before = self._config(self._made_config) or ownership.leftover(
            list(clusters.values()), configs.values(), self._target.reference, self._target.owner
        )
        if before:
            gone = [key for key in before if key not in ("apiVersion", "kind", "metadata", *content)]
            patch = {"metadata": _as_read(before), **dict.fromkeys(gone), **content}
            name = str(before["metadata"]["name"])
            self._rancher.api.patch(self._config_path(name), patch)
            return name
        body = {
            "apiVersion": "rke-machine-config.cattle.io/v1",
            "kind": "HarvesterConfig",
            "metadata": {
                "generateName": f"nc-{self._target.cluster}-{self._target.name}-",
                "namespace": self._rancher.namespace,
                "labels": ownership.marks(self._target.owner),
                "annotations": {
                    ownership.CLUSTER_ANNOTATION: self._target.cluster,
                    ownership.POOL_ANNOTATION: self._target.name,
                },
            },
            **content,
        }
        return str(self._rancher.api.post(configs_path(self._rancher.namespace), body)["metadata"]["name"])

    def _write_config(self, pool: Pool, changes: Mapping[str, Any]) -> None:
        """Write the config after checking its references again: Rancher replaces the machines of every such pool."""
        read = self._config(pool.config_name)
        clusters = ObjectList.of(self._rancher.api.get(clusters_path(self._rancher.namespace))).items.values()
        if ownership.references(clusters, pool.config_name) - {self._target.reference}:
            raise Conflict(f"Another pool refers to HarvesterConfig {pool.config_name} now.", status=409)
        patch = {**({"metadata": _as_read(read)} if read else {}), **changes}
        self._rancher.api.patch(self._config_path(pool.config_name), patch)

    def _write_entry(self, change: Change) -> None:
        entries = [entry for entry in pool_entries(self._cluster) if entry.get("name") != self._target.name]
        position = next(
            (i for i, entry in enumerate(pool_entries(self._cluster)) if entry.get("name") == self._target.name),
            len(entries),
        )
        if change.after is not None:
            entries.insert(position, dict(change.after.entry))
        patch = {"metadata": _as_read(self._cluster), "spec": {"rkeConfig": {"machinePools": entries}}}
        path = f"{clusters_path(self._rancher.namespace)}/{self._target.cluster}"
        self._cluster = self._rancher.api.patch(path, patch)

    def _drop_config(self, name: str) -> None:
        reading = self._rancher.read()
        config = reading.configs.items.get(f"{self._rancher.namespace}/{name}")
        if config is not None and not self._stays_because(reading, name):
            # Not found, or a conflict: the config is gone, and somebody else may have made one of this name.
            with suppress(NotFound, Conflict):
                self._rancher.api.delete(self._config_path(name), uid=str(config["metadata"].get("uid") or ""))

    def _stays_because(self, reading: RancherSnapshot, name: str) -> str:
        """Return why a config is not deleted with its pool: another pool refers to it, or it lacks the owner mark."""
        config = reading.configs.items.get(f"{self._rancher.namespace}/{name}")
        if config is None:
            return ""
        users = ownership.references(reading.clusters.items.values(), name) - {self._target.reference}
        if users:
            return f"{join_names(sorted(map(str, users)))} refers to it"
        return (
            "" if ownership.is_ours(config, self._target.owner) else f"it is not marked as made by {self._target.owner}"
        )

    # Waiting
    def _observed(self) -> dict[str, ObjectList]:
        namespace = self._rancher.namespace
        paths = (machines_path(namespace), deployments_path(namespace))
        answers = self._rancher.api.together([partial(self._rancher.api.get, path) for path in paths])
        return {path: ObjectList.of(answer) for path, answer in zip(paths, answers, strict=True)}

    def _until_ready(self, after: Pool, leaving: frozenset[str]) -> None:
        """Wait until all machines are nodes and up to date. Rancher may take a moment to notice outdated machines."""
        quantity, namespace = after.quantity, self._rancher.namespace
        with Watcher(self._rancher.api, self._observed(), seconds=self._seconds) as seen:

            def deployment() -> Json:
                mine = (self._target.cluster, self._target.name)
                everyone = seen.items(deployments_path(namespace)).values()
                return next((deployment for deployment in everyone if is_deployment_of(deployment, *mine)), {})

            def ready() -> bool:
                there = seen.items(machines_path(namespace))
                if any(f"{namespace}/{name}" in there for name in leaving):
                    return False
                if not quantity:
                    return True
                found = deployment()
                status = found.get("status") or {}
                if status.get("observedGeneration", 1 << 62) < (found.get("metadata") or {}).get("generation", 0):
                    return False
                counts = [status.get(key, 0) for key in ("replicas", "updatedReplicas", "readyReplicas")]
                return (found.get("spec") or {}).get("replicas") == quantity and counts == [quantity] * 3

            def describe() -> str:
                status = deployment().get("status") or {}
                ready, current = status.get("readyReplicas", 0), status.get("updatedReplicas", 0)
                return f"pool {self._target.name}: {ready} of {quantity} machines ready, {current} up to date"

            seen.describe = describe
            done = seen.until(ready)
            self._reading = RancherSnapshot(
                self._reading.clusters, self._reading.configs, seen.listing(machines_path(namespace))
            )
        if not done:
            raise self._not_ready(quantity)

    def _not_ready(self, quantity: int) -> PoolTimeout:
        machines = self._reading.machines_of(self._cluster, self._target.name)
        waiting = [machine for machine in machines if (machine.get("status") or {}).get("phase") != READY]
        unscheduled = self._rancher.unscheduled(self._cluster, self._entry, self._target.harvester) if waiting else {}
        # List machines that cannot be scheduled first: the others may just need more time.
        waiting.sort(key=lambda item: self._vm_path(item) not in unscheduled)
        said = "; ".join(self._trouble(machine, unscheduled) for machine in waiting[:3])
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
        """Return which VM waits for what, from the most specific source."""
        status, path = machine.get("status") or {}, self._vm_path(machine)
        if path in unscheduled:
            return f"VM {path} cannot start: {unscheduled[path]}"
        for condition in status.get("conditions") or []:
            if condition.get("status") == "False" and condition.get("message"):
                return f"machine {machine['metadata']['name']}: {condition['message'].rstrip('.')}"
        return f"machine {machine['metadata']['name']} is {status.get('phase') or 'Pending'}"

    def _until_gone(self) -> None:
        with Watcher(self._rancher.api, self._observed(), seconds=self._seconds) as seen:

            def left() -> list[Json]:
                path = machines_path(self._rancher.namespace)
                labels = [item["metadata"].get("labels") or {} for item in seen.items(path).values()]
                mine = (self._target.cluster, self._target.name)
                keys = ("cluster.x-k8s.io/cluster-name", "rke.cattle.io/rke-machine-pool-name")
                return [label for label in labels if tuple(label.get(key) for key in keys) == mine]

            seen.describe = lambda: f"pool {self._target.name}: {len(left())} machines left"
            if not seen.until(lambda: not left()):
                raise PoolTimeout(
                    f"Pool {self._target.name} of cluster {self._target.cluster} still has {len(left())} machines"
                    f" {self._seconds:.0f} s after its removal.",
                    hint="Rancher goes on removing them: see the machines in its cluster page.",
                )


def _as_read(thing: Json) -> Json:
    """Return the metadata for a patch that the API server refuses if the object has changed since it was read."""
    return {"resourceVersion": thing["metadata"]["resourceVersion"]}


def _loses_role(before: Pool, after: Pool) -> bool:
    gone = set(before.roles) - set(after.roles)
    return bool(gone & {"etcd", "control_plane"}) or (before.quantity > 0 and after.quantity == 0)
