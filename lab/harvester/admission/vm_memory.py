"""Changes of Harvester's own mutator to the memory of VirtualMachines (harvester.md 10.7). Pure.

The mutator derives guest memory and request from the memory limit: the guest gets the limit minus the reservation of an
annotation. The mutator does not change a VM without a memory limit. The settings have their defaults: 150 % overcommit,
and an overhead ratio. Without an overhead ratio, Harvester would reserve 100 MiB for every VM.
"""

from __future__ import annotations

from lab.harvester import resources as r
from lab.harvester.admission.rules import devices_of
from lab.kubernetes.client import Json
from lab.kubernetes.quantity import Quantity

DOMAIN_PATH = "/spec/template/spec/domain"
OVERCOMMIT_PERCENT = 150
MIB = 1024**2
LEAST_GUEST = 10 * MIB


class Refusal(Exception):
    """Raised if the mutator denies the request."""


def patch(request: Json) -> list[Json]:
    vm = request["object"]
    if "deletionTimestamp" in vm["metadata"]:
        return []
    if request["operation"] == "UPDATE" and not _needs_another_look(request["oldObject"], vm):
        return []
    limit = _limit(vm)
    if limit is None:
        return []
    guest = _guest(vm, limit)
    domain = _domain(vm)
    wanted = {"memory": str(_request(vm, limit, guest))}
    if _resources(vm).get("requests"):
        steps = [_add("resources/requests/memory", wanted["memory"])]
    else:
        steps = [_add("resources/requests", wanted)]
    if domain.get("memory") is None:
        return [*steps, _add("memory", {"guest": str(guest)})]
    return [*steps, _add("memory/guest", str(guest))]


def _needs_another_look(old: Json, new: Json) -> bool:
    """Return whether a mutator input has changed, or a VM with devices still requests less than its guest memory."""
    if _goes_by(old) != _goes_by(new):
        return True
    guest = (_domain(new).get("memory") or {}).get("guest")
    requested = (_resources(new).get("requests") or {}).get("memory", "0")
    return any(_counts(new)) and guest is not None and _quantity(guest).amount != _quantity(requested).amount


def _goes_by(vm: Json) -> tuple[object, ...]:
    limits = _resources(vm).get("limits") or {}
    return _limit(vm), limits.get("cpu"), _reserved(vm), _dedicated(vm), _counts(vm)


def _guest(vm: Json, limit: Quantity) -> Quantity:
    reserved = 0
    if text := _reserved(vm):
        try:
            reserved = Quantity.parse(text).amount
        except ValueError:
            raise Refusal(f"annotation {text} can't be converted to memory unit") from None
        if reserved >= limit.amount:
            raise Refusal(f"reservedMemory can't be equal or greater than limits.memory  {reserved} {limit.amount}")
    guest = Quantity(limit.amount - reserved, limit.binary)
    if guest.amount < LEAST_GUEST:
        raise Refusal(
            f"guest memory is under the minimum requirement (10 Mi), original: {limit.amount}, final: {guest.amount}"
        )
    return guest


def _request(vm: Json, limit: Quantity, guest: Quantity) -> Quantity:
    if _dedicated(vm):
        return limit
    if any(_counts(vm)):
        # VMs with devices get no memory overcommit: kubevirt#10379.
        return guest
    return Quantity(limit.amount * 100 // OVERCOMMIT_PERCENT // MIB * MIB, limit.binary)


def _add(path: str, value: object) -> Json:
    return {"op": "add", "path": f"{DOMAIN_PATH}/{path}", "value": value}


def _domain(vm: Json) -> Json:
    domain: Json = vm["spec"]["template"]["spec"].get("domain") or {}
    return domain


def _resources(vm: Json) -> Json:
    resources: Json = _domain(vm).get("resources") or {}
    return resources


def _limit(vm: Json) -> Quantity | None:
    text = (_resources(vm).get("limits") or {}).get("memory")
    limit = None if text is None else _quantity(text)
    return limit if limit and limit.amount else None


def _quantity(text: str | float) -> Quantity:
    try:
        return Quantity.parse(text)
    except ValueError:
        form = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
        raise Refusal(f"quantities must match the regular expression '{form}'") from None


def _reserved(vm: Json) -> str:
    return str((vm["metadata"].get("annotations") or {}).get(r.RESERVED_MEMORY_ANNOTATION) or "")


def _dedicated(vm: Json) -> bool:
    return bool((_domain(vm).get("cpu") or {}).get("dedicatedCpuPlacement"))


def _counts(vm: Json) -> tuple[int, int]:
    devices = devices_of(vm)
    return len(devices.get("hostDevices") or []), len(devices.get("gpus") or [])
