"""Parse the phrases for which a recording waited into conditions."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from lab.replay.observe.history import PLURAL, Key, Snapshot
from lab.replay.observe.normalized import gpu_resources
from lab.replay.read.step_context import StepContext, node_in, resource_of

Json = dict[str, Any]
Test = Callable[[Json | None], bool]

# Types a free NVIDIA A2 offers: the board of all recordings.
ALL_TYPES = 15
CONFIGURED = "vGPUConfigured"
NAME = r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?-[0-9a-f]{9}"
COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "=": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
FIELDS = r"(?:status|spec|metadata)\.[\w./-]+|availableTypes|profileStatus|vGPUStatus|uuid|configureVGPUTypeName"

# The resource a field belongs to, where a phrase names the field alone.
OWNER = {
    "vfAddresses": "sriovgpudevices",
    "vGPUDevices": "sriovgpudevices",
    "availableTypes": "vgpudevices",
    "vGPUStatus": "vgpudevices",
    "configureVGPUTypeName": "vgpudevices",
    "uuid": "vgpudevices",
    "profileStatus": "migconfigurations",
    "profileSpec": "migconfigurations",
    "passthroughEnabled": "pcideviceclaims",
}


class ClusterState(Protocol):
    """What a condition can test."""

    snapshot: Snapshot

    def webhook_refuses(self) -> bool: ...

    def processes(self) -> Mapping[str, bool]: ...


@dataclass(frozen=True)
class Condition:
    holds: Callable[[ClusterState], bool]
    # Set when the condition is about one object: which, and what is tested of it.
    key: Key | None = None
    test: Test | None = None


def about(key: Key, test: Test) -> Condition:
    return Condition(lambda cluster: test(cluster.snapshot.get(*key)), key, test)


def parse_condition(phrase: str, title: str, context: StepContext) -> Condition | None:
    """Return the condition for a phrase, or None if the phrase is unknown."""
    text = re.sub(r"\s+", " ", phrase).strip().rstrip(".")
    for candidate in (text, re.sub(r"\s*\([^)]*\)", "", text)):
        for pattern, build in GRAMMAR:
            if (match := re.fullmatch(pattern, candidate)) and (condition := build(match, title, context)):
                return condition
    clauses = re.split(r", (?:and )?| and ", text)
    if len(clauses) > 1:
        parts = [parse_condition(clause, title, _at(context, clause)) for clause in clauses]
        if all(parts):
            return Condition(lambda cluster: all(part.holds(cluster) for part in parts if part))
    return None


def _at(context: StepContext, text: str) -> StepContext:
    node = node_in(text, context.nodes)
    return replace(context, node=node) if node else context


def types_of(obj: Json | None) -> Mapping[str, str]:
    return ((obj or {}).get("status") or {}).get("availableTypes") or {}


def field_of(obj: Json | None, path: str) -> Any:
    """Return a field by its dotted path. Look up a bare name in status, then in spec."""
    if obj is None:
        return None
    if path.startswith(("metadata.labels.", "metadata.annotations.")):
        _, section, key = path.split(".", 2)
        return (obj["metadata"].get(section) or {}).get(key)
    if "." not in path:
        sections = [obj.get(section) or {} for section in ("status", "spec", "metadata")]
        return next((section[path] for section in sections if path in section), None)
    value: Any = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def plural_in(text: str) -> str | None:
    """Return the resource that a text names."""
    for kind, plural in PLURAL.items():
        if kind != "Node" and re.search(rf"\b{kind}s?\b", text):
            return plural
    if re.search(r"\bclaims?\b", text, re.IGNORECASE):
        return "pcideviceclaims"
    if re.search(r"\bVFs?\b", text):
        return "vgpudevices"
    return None


def _subject(match: re.Match[str], title: str, context: StepContext) -> Key | None:
    groups = match.groupdict()
    path = groups.get("field") or groups.get("wanted") or ""
    plural = plural_in(groups.get("kind") or "") or OWNER.get(path.rpartition(".")[2])
    if groups.get("name"):
        return (plural or plural_in(title) or "vgpudevices", groups["name"])
    return context.latest(plural or plural_in(title)) or context.subject


def _field(match: re.Match[str], title: str, context: StepContext) -> Condition | None:
    key = _subject(match, title, context)
    if key is None:
        return None
    path, wanted = match["field"], match["test"].strip()
    if wanted.startswith("not empty") or wanted in ("", "set", "filled", "true"):
        return about(key, lambda obj: bool(field_of(obj, path)))
    if re.fullmatch(r"(?:is )?(?:empty|cleared|unset|gone)(?: again)?", wanted):
        return about(key, lambda obj: obj is not None and not field_of(obj, path))
    sign, _, value = wanted.partition(" ")
    compare = COMPARE.get(sign)
    if compare is None:
        return None
    value = value.strip().strip("'\"")
    if re.fullmatch(r"(?:spec|status)\.\w+", value):
        return about(key, lambda obj: field_of(obj, path) == (field_of(obj, value) or "(nothing)"))

    def test(obj: Json | None) -> bool:
        actual = field_of(obj, path)
        text = str(actual).lower() if isinstance(actual, bool) else str(actual or "")
        return obj is not None and compare(text, value.lower() if isinstance(actual, bool) else value)

    return about(key, test)


def _amount(match: re.Match[str], title: str, context: StepContext) -> Condition:
    groups = match.groupdict()
    node = groups.get("node") or context.node
    amounts = groups.get("amounts") or ("capacity" if "capacity" in title else "allocatable")
    resource = resource_of(groups.get("resource") or context.profile)
    compare, wanted = COMPARE[groups.get("sign") or "=="], int(match["number"])
    return about(
        ("nodes", node),
        lambda obj: obj is not None and compare(int(gpu_resources(obj, amounts).get(resource, "0")), wanted),
    )


def _number(match: re.Match[str], title: str, context: StepContext) -> Condition | None:
    if match["number"] == "404":
        return _gone(match, title, context)
    plural = plural_in(title)
    if re.search(r"\b(allocatable|capacity)\b", title):
        return _amount(match, title, context)
    if plural is None:
        return None
    return _count(plural, context.node, lambda obj: True, int(match["number"]))


def _count(plural: str, node: str, test: Test, wanted: int) -> Condition:
    return Condition(
        lambda cluster: sum(1 for obj in cluster.snapshot.of_node(plural, node).values() if test(obj)) == wanted
    )


def _offers(match: re.Match[str]) -> Test:
    groups = match.groupdict()
    wanted = groups.get("types") or ""
    if wanted.isdigit():
        return lambda obj: len(types_of(obj)) == int(wanted)
    if wanted == "no":
        return lambda obj: not types_of(obj)
    if wanted == "all":
        return lambda obj: len(types_of(obj)) == ALL_TYPES
    return lambda obj: bool(types_of(obj))


def _counted_offers(match: re.Match[str], title: str, context: StepContext) -> Condition:
    groups = match.groupdict()
    node = groups.get("node") or context.node
    offers, which = _offers(match), (groups.get("which") or "").strip()
    # A device that is on lists no types, and is as ready as one that lists them.
    or_enabled = bool(groups.get("or_enabled")) or match.re.pattern == READY

    def holds(cluster: ClusterState) -> bool:
        count = 0
        for name, vgpu in cluster.snapshot.of_node("vgpudevices", node).items():
            enabled = bool((vgpu.get("spec") or {}).get("enabled"))
            if (which == "other" and name == context.device) or (which == "disabled" and enabled):
                continue
            if (which == "enabled" and not enabled) or not (offers(vgpu) or (or_enabled and enabled)):
                continue
            count += 1
        return count == int(groups["number"]) if groups.get("number") else count > 0

    return Condition(holds)


def _all_offer(match: re.Match[str], title: str, context: StepContext) -> Condition:
    node = match.groupdict().get("node") or context.node
    offers = _offers(match)

    def holds(cluster: ClusterState) -> bool:
        vgpus = cluster.snapshot.of_node("vgpudevices", node).values()
        return bool(vgpus) and all(offers(vgpu) for vgpu in vgpus)

    return Condition(holds)


def _nth_offers(match: re.Match[str], title: str, context: StepContext) -> Condition:
    offers = _offers(match)

    def holds(cluster: ClusterState) -> bool:
        vgpus = list(cluster.snapshot.of_node("vgpudevices", context.node).values())
        return bool(vgpus) and offers(vgpus[0 if match["nth"] == "first" else -1])

    return Condition(holds)


def _one_offers(match: re.Match[str], title: str, context: StepContext) -> Condition | None:
    key = _subject(match, title, context)
    return about(key, _offers(match)) if key else None


def _cleared(match: re.Match[str], title: str, context: StepContext) -> Condition:
    names = re.findall(NAME, match["names"])
    rest = match["rest"] or ""

    def holds(cluster: ClusterState) -> bool:
        devices = [cluster.snapshot.get("vgpudevices", name) for name in names]
        if any(obj is None or field_of(obj, "status.vGPUStatus") for obj in devices):
            return False
        if "claims" in rest and any(cluster.snapshot.get("pcideviceclaims", name) for name in names):
            return False
        return "listed again" not in rest or all(types_of(obj) for obj in devices)

    return Condition(holds)


def _exists(match: re.Match[str], title: str, context: StepContext) -> Condition | None:
    key = _subject(match, title, context)
    if key is None:
        return None
    wanted = match.groupdict().get("wanted")
    if wanted is None:
        return about(key, lambda obj: obj is not None)
    if wanted.endswith("types") or wanted == "availableTypes":
        return about(key, lambda obj: bool(types_of(obj)))
    return about(key, lambda obj: bool(field_of(obj, wanted)))


def _gone(match: re.Match[str], title: str, context: StepContext) -> Condition | None:
    groups = match.groupdict()
    plural = plural_in(groups.get("kind") or "") or plural_in(title)
    if groups.get("name"):
        key: Key | None = (plural or "vgpudevices", groups["name"])
    else:
        key = context.latest(plural) or context.subject
    return about(key, lambda obj: obj is None) if key else None


def _counted(match: re.Match[str], title: str, context: StepContext) -> Condition | None:
    groups = match.groupdict()
    plural = plural_in(groups["kind"]) if groups.get("kind") else plural_in(title) or "vgpudevices"
    if plural is None:
        return None
    number = groups.get("number")
    node = groups.get("node") or context.node
    if number in ("any", "a"):
        return Condition(lambda cluster: bool(cluster.snapshot.of_node(plural, node)))
    wanted = 0 if number in (None, "no", "none") else int(number)
    return _count(plural, node, lambda obj: True, wanted)


def _pf_and_vfs(match: re.Match[str], title: str, context: StepContext) -> Condition:
    return _count("pcidevices", context.node, lambda obj: True, int(match["number"]) + 1)


def _label(match: re.Match[str], title: str, context: StepContext) -> Condition:
    label = match["label"]
    return about(
        ("nodes", context.node), lambda obj: obj is not None and label in (obj["metadata"].get("labels") or {})
    )


def _webhook(match: re.Match[str], title: str, context: StepContext) -> Condition:
    return Condition(lambda cluster: cluster.webhook_refuses())


def _processes(match: re.Match[str], title: str, context: StepContext) -> Condition:
    wanted = match["state"] in ("running", "up", "alive", "started", "back")
    node = node_in(match.string, context.nodes)

    def holds(cluster: ClusterState) -> bool:
        processes = cluster.processes()
        return all(alive is wanted for name, alive in processes.items() if node in (None, name))

    return Condition(holds)


def _configured(match: re.Match[str], title: str, context: StepContext) -> Condition | None:
    key = _subject(match, title, context)
    return about(key, lambda obj: field_of(obj, "status.vGPUStatus") == CONFIGURED) if key else None


def _mig_status(match: re.Match[str], title: str, context: StepContext) -> Condition | None:
    key, wanted = context.latest("migconfigurations"), match["state"]
    return about(key, lambda obj: field_of(obj, "status.status") == wanted) if key else None


KIND = r"(?P<kind>[A-Z]\w+|claim|object|PF|VF)"
NODE = r"(?P<node>[a-z0-9][a-z0-9.-]*)"
TYPES = r"(?P<types>\d+|no|all)? ?(?:available ?[Tt]ypes|types)(?: again)?"
READY = rf"(?P<number>\d+) with {TYPES}"
Builder = Callable[[re.Match[str], str, StepContext], Condition | None]

GRAMMAR: list[tuple[str, Builder]] = [
    (
        rf"(?P<number>\d+) (?:VGPUDevices|VFs)(?: of {NODE})? (?:with|list) {TYPES}(?P<or_enabled> \(or enabled\))?",
        _counted_offers,
    ),
    (
        rf"(?:all |the )?(?P<which>other |disabled |enabled )?(?P<number>\d+) (?:VGPUDevices|VFs)(?: of {NODE})? "
        rf"(?:with|lists?) {TYPES}",
        _counted_offers,
    ),
    (
        rf"(?P<number>\d+) (?P<which>disabled |enabled )(?:VGPUDevices|VFs)(?: of {NODE})? (?:with|lists?) {TYPES}",
        _counted_offers,
    ),
    (READY, _counted_offers),
    (rf"(?P<nth>first|last) VF lists? {TYPES}", _nth_offers),
    (rf"{NODE} (?P<types>all) types", _all_offer),
    (rf"all (?:VGPUDevices|VFs)(?: of {NODE})? lists? {TYPES}", _all_offer),
    (rf"(?P<name>{NAME}) lists? {TYPES}", _one_offers),
    (rf"(?:status of )?(?P<names>{NAME}(?:(?:, | and ){NAME})*) cleared(?P<rest>(?:, .*)?)", _cleared),
    (r"PF and (?P<number>\d+) VFs exist as PCIDevices?", _pf_and_vfs),
    (rf"(?P<number>\d+|any|a|no) (?P<kind>\w+)(?: of {NODE})?(?: exists?| left| back)?(?: again)?", _counted),
    (rf"none(?: left)?(?: of {NODE})?", _counted),
    (
        rf"{NODE} (?:(?P<amounts>allocatable|capacity) )?(?P<resource>nvidia\.com/\S+|\d+[A-Z]+) (?P<sign>[=<>!]=?) "
        r"(?P<number>\d+)",
        _amount,
    ),
    (
        r"(?P<amounts>allocatable|capacity)(?: (?P<resource>nvidia\.com/\S+|\d+[A-Z]+))? (?P<sign>[=<>!]=?) "
        r"(?P<number>\d+)",
        _amount,
    ),
    (r"(?P<number>\d+)", _number),
    (rf"(?:{KIND} )?(?:(?P<name>{NAME}) )?exists?(?: again)?(?: with (?P<wanted>[\w.]+))?", _exists),
    (rf"(?:{KIND} )?(?:(?P<name>{NAME}) ?)?(?:is )?(?:gone|deleted|removed|absent|not found)", _gone),
    (rf"(?:{KIND} )?(?:(?P<name>{NAME}) )?(?P<field>{FIELDS})(?P<test>(?: [^()]*)?)", _field),
    (rf"(?:(?P<name>{NAME}) )?configured", _configured),
    (r"(?:status )?(?P<state>synced|out-of-sync|disabled)", _mig_status),
    (r"(?:label )?(?P<label>[\w.-]+/[\w.-]+) (?:back|restored|there|present)(?: again)?", _label),
    (r"(?:the )?webhook (?:answers|refuses|is up|is back)(?: again)?", _webhook),
    (r"a dry-run .* is refused(?: again)?", _webhook),
    (r".*process(?:es)? .*\b(?P<state>running|up|alive|started|back|ended|down|dead|gone)\b.*", _processes),
]
