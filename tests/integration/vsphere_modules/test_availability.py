"""vgpu_availability on vSphere: the same answers as on Harvester, with the room on GPUs as what is free."""

from __future__ import annotations

import pytest
from pyVmomi import vim

from tests.integration.modules.examples import examples

MMIO = {"pciPassthru.use64bitMMIO": "TRUE", "pciPassthru.64bitMMIOSizeGB": "256"}
LARGE = {"extra_config": MMIO}


def machine(name, *profiles, host="esx1", **more):
    return {"name": name, "host": host, "vgpus": list(profiles), **more}


def running(name, *profiles, **more):
    return machine(name, *profiles, memory_locked=True, power="on", **more)


def demand(profile, machines=1, count=1, name="pool", **more):
    return {"name": name, "machines": machines, "vgpus": [{"profile": profile, "count": count}], **more}


@pytest.fixture
def ask(playbooks):
    def ask(vcenter, *demands, require=False, **options):
        asked = {"demand": list(demands)} if demands else {}
        run = playbooks(vcenter)
        return run.task("vgpu_availability", platform="vsphere", require=require, **asked, **options)

    return ask


def counted(result, profile, *keys):
    record = next(one for one in result["profiles"] if one["profile"] == profile)
    return tuple(record[key] for key in keys)


def on_host(result, profile, host):
    record = next(one for one in result["profiles"] if one["profile"] == profile)
    return next(node for node in record["nodes"] if node["node"] == host)


def test_an_empty_cluster_has_room_for_what_the_boards_take(start, section, version, ask):
    result = ask(start(section, version))
    keys = ("allocatable", "in_use", "claimed", "free_now", "free", "creatable", "exact")
    assert counted(result, "nvidia_a40-4q", *keys) == (48, 0, 0, 48, 48, 0, True)
    assert counted(result, "nvidia_a40-48q", "free_now") == (4,)
    assert [gpu["free_now"] for gpu in on_host(result, "nvidia_a40-4q", "esx1")["gpus"]] == [12, 12]
    assert result["nodes"] == [
        {"name": "esx1", "usable": True, "reason": ""},
        {"name": "esx2", "usable": True, "reason": ""},
        {"name": "esx3", "usable": False, "reason": "has no NVIDIA GPU"},
    ]


def test_a_running_vgpu_pins_its_gpu_to_its_size(start, section, ask):
    section["vms"].append(running("trainer", "nvidia_a40-8q"))
    result = ask(start(section))
    assert counted(result, "nvidia_a40-8q", "in_use", "free_now") == (1, 23)
    assert counted(result, "nvidia_a40-8c", "free_now") == (23,)
    assert counted(result, "nvidia_a40-4q", "free_now") == (36,)
    first, second = on_host(result, "nvidia_a40-4q", "esx1")["gpus"]
    assert (first["free_now"], second["free_now"]) == (0, 12)
    assert "same size" in first["reason"]
    assert "trainer" in first["reason"]


@pytest.mark.parametrize("old", ["7.0.3", "6.7"])
def test_before_8_0_2_it_is_pinned_to_its_type(start, section, ask, old):
    section["vms"].append(running("trainer", "nvidia_a40-8q"))
    result = ask(start(section, old))
    assert counted(result, "nvidia_a40-8q", "in_use", "free_now") == (1, 23)
    assert counted(result, "nvidia_a40-8c", "free_now") == (18,)
    assert "one profile at a time" in on_host(result, "nvidia_a40-8c", "esx1")["gpus"][0]["reason"]


def test_vms_that_are_off_claim_what_they_will_take(start, section, ask):
    section["vms"] += [machine("later", "nvidia_a40-48q", "nvidia_a40-48q")]
    result = ask(start(section))
    keys = ("in_use", "claimed", "free_now", "free")
    assert counted(result, "nvidia_a40-48q", *keys) == (0, 2, 4, 2)
    assert counted(result, "nvidia_a40-4q", *keys) == (0, 0, 48, 24)
    # It may start on any host of its cluster, so no host is charged with it.
    assert on_host(result, "nvidia_a40-48q", "esx1")["claimed"] == 0


def test_without_drs_the_host_is_charged(start, section, ask):
    section["clusters"][0]["drs"] = "off"
    section["vms"] += [machine("later", "nvidia_a40-48q", host="esx2")]
    result = ask(start(section))
    assert on_host(result, "nvidia_a40-48q", "esx2")["claimed"] == 1
    assert on_host(result, "nvidia_a40-48q", "esx2")["free"] == 1
    assert on_host(result, "nvidia_a40-48q", "esx1")["free"] == 2


REASONS = {
    "upkeep": ({"maintenance": True}, "host upkeep is in maintenance mode"),
    "away": ({"connected": False}, "host away is not connected"),
    "screen": ({"graphics_type": "shared"}, "it is not shared direct"),
    "bare": ({"driver": False}, "driver is missing"),
    "given": ({"gpus": [{"board": "A40", "graphics_type": "direct"}]}, "given away whole"),
}


def test_a_zero_has_its_reason(start, section, ask):
    section["clusters"][0]["hosts"] += [
        {"name": name, "gpus": [{"board": "A40", "count": 2}], **change} for name, (change, _reason) in REASONS.items()
    ]
    result = ask(start(section))
    for name, (_change, reason) in REASONS.items():
        host = on_host(result, "nvidia_a40-4q", name)
        assert host["free_now"] == 0
        assert host["gpus"]
        assert all(reason in gpu["reason"] for gpu in host["gpus"]), name
    assert counted(result, "nvidia_a40-4q", "free_now") == (48,)


def test_clusters_and_hosts_can_be_chosen(start, section, ask):
    section["clusters"].append({"name": "other", "hosts": [{"name": "far1", "gpus": [{"board": "A40"}]}]})
    vcenter = start(section)
    everything = ask(vcenter)
    assert counted(everything, "nvidia_a40-4q", "free") == (60,)
    record = next(one for one in everything["profiles"] if one["profile"] == "nvidia_a40-4q")
    assert [(one["cluster"], one["free"]) for one in record["clusters"]] == [("gpu", 48), ("other", 12)]
    assert counted(ask(vcenter, cluster="other"), "nvidia_a40-4q", "free") == (12,)
    assert counted(ask(vcenter, esxi_hosts=["esx1"]), "nvidia_a40-4q", "free") == (24,)
    assert counted(ask(vcenter, nodes=["esx*"]), "nvidia_a40-4q", "free") == (48,)


def test_b_mixed_sizes_are_counted_as_the_server_places_them(start, section, ask):
    """Two of 16 GB leave exactly two places for 8 GB, and the server has them."""
    section["clusters"][0]["hosts"] = [{"name": "esx1", "gpus": [{"board": "A40", "mode": "mixed_size"}]}]
    section["vms"] = [running(f"large-{n}", "nvidia_a40-16q", host="esx1", **LARGE) for n in (1, 2)]
    vcenter = start(section)
    shown = on_host(ask(vcenter), "nvidia_a40-8q", "esx1")
    assert (shown["free_now"], shown["free_now_at_most"], shown["exact"]) == (2, 2, True)
    assert [slot["start"] for slot in vcenter.books["esx1"][0]["slots"]] == [0, 32]
    for number in (1, 2):
        vcenter.running(f"small-{number}", "nvidia_a40-8q", host=vcenter.host("esx1"))
    assert on_host(ask(vcenter), "nvidia_a40-8q", "esx1")["free_now"] == 0
    # Without the large ones, the two small ones may be anywhere: the server has them at 16 and 24.
    for number in (1, 2):
        vcenter.wait(vcenter.vm(f"large-{number}").PowerOffVM_Task())
    shown = on_host(ask(vcenter), "nvidia_a40-16q", "esx1")
    assert (shown["free_now"], shown["free_now_at_most"], shown["exact"]) == (0, 2, False)
    assert "0 to 2" in shown["gpus"][0]["reason"]


def test_unclear_vms_are_estimates(start, section, ask):
    section["vms"].append(running("trio", *["nvidia_a40-8q"] * 3, host="esx2"))
    result = ask(start(section))
    assert not on_host(result, "nvidia_a40-8q", "esx2")["exact"]
    assert counted(result, "nvidia_a40-8q", "exact") == (False,)
    # How they are divided between the two GPUs is not told, but how many there are is.
    assert on_host(result, "nvidia_a40-8q", "esx2")["in_use"] == 3
    assert on_host(result, "nvidia_a40-8q", "esx2")["free_now"] == 9


def test_mig_instances_are_counted(start, section, ask):
    section["clusters"][0]["hosts"][0]["gpus"] = [{"board": "A100", "mode": "mig"}]
    section["vms"].append(running("slice", "grid_a100-3-20c", **LARGE))
    result = ask(start(section), esxi_hosts=["esx1"])
    assert counted(result, "grid_a100-3-20c", "in_use", "free_now") == (1, 1)
    assert counted(result, "grid_a100-1-5c", "free_now", "exact") == (4, False)
    assert counted(result, "grid_a100-7-40c", "free_now") == (0,)


def test_machines_need_all_their_vgpus_on_one_host(start, section, ask):
    """Eight are free, but no host has three of them beside each other twice."""
    vcenter = start(section)
    result = ask(vcenter, demand("A40-24Q", machines=2, count=4), demand("A40-24Q", machines=1, count=1, name="more"))
    assert not result["fits"]
    assert [answer["placed"] for answer in result["demand"]] == [2, 0]
    fitting = ask(vcenter, demand("A40-24Q", machines=2, count=3), demand("A40-24Q", machines=2, count=1, name="more"))
    assert fitting["fits"]
    assert sum(node["machines"] for node in fitting["demand"][0]["nodes"]) == 2


def test_what_fits_can_really_be_started(start, section, ask):
    """The answer is held against the lab's own admission, for both assignment policies."""
    for policy, fits in {"performance": False, "consolidation": True}.items():
        section["clusters"][0]["hosts"] = [
            {"name": "esx1", "gpus": [{"board": "A40", "count": 2}], "assignment_policy": policy}
        ]
        section["vms"] = []
        vcenter = start(section)
        small, large = demand("A40-8Q", machines=2, name="small"), demand("A40-16Q", machines=1, name="large")
        # In this order: two of 8 GB first, which "performance" spreads over both GPUs.
        asked = ask(vcenter, small)
        assert asked["fits"]
        for number in range(2):
            vcenter.running(f"small-{number}", "nvidia_a40-8q")
        assert ask(vcenter, large)["fits"] is fits
        assert len({gpu["address"] for gpu in vcenter.books["esx1"] if gpu["slots"]}) == (1 if fits else 2)


def test_a_demand_that_does_not_fit_fails_with_reasons_and_help(start, section, ask):
    section["clusters"][0]["hosts"][1]["maintenance"] = True
    section["vms"] += [running("trainer", "nvidia_a40-8q"), machine("later", "nvidia_a40-48q")]
    result = ask(start(section), demand("A40-48Q", machines=2), require=True)
    assert result.code == "demand_does_not_fit"
    for words in ("pool", "nvidia_a40-48q", "trainer", "later", "End the maintenance of host esx2", "GPU 0000:3b:00.0"):
        assert words in result.message, words


def test_what_would_suggestionis_told(start, section, ask):
    hosts = section["clusters"][0]["hosts"]
    hosts[1]["graphics_type"] = "shared"
    section["vms"] += [machine("later", "nvidia_a40-48q", "nvidia_a40-48q")]
    result = ask(start(section), demand("A40-48Q", machines=2))
    assert not result["fits"]
    assert any("shared direct" in suggestion and "esx2" in suggestion for suggestion in result["suggestions"])
    assert any("later" in suggestion for suggestion in result["suggestions"])


def test_machines_of_the_owner_count_as_there(start, section, ask):
    section["vms"] += [running("pool-1", "nvidia_a40-48q", **LARGE), running("other", "nvidia_a40-48q", **LARGE)]
    vcenter = start(section)
    result = ask(vcenter, demand("A40-48Q", machines=3, owner="name in (pool-1)"))
    assert result["demand"][0]["existing"] == ["pool-1"]
    assert result["demand"][0]["placed"] == 2
    changed = ask(vcenter, demand("A40-24Q", machines=6, owner="name=pool-1"))
    assert changed["demand"][0]["existing"] == []
    assert changed["fits"]


def test_an_unknown_profile_is_refused_and_a_foreign_one_is_offered_nowhere(vcenter, ask):
    assert ask(vcenter, demand("A40-5Q")).code == "unknown_profile"
    result = ask(vcenter, demand("T4-4Q"))
    assert not result["fits"]
    assert "No host offers" in result["demand"][0]["reasons"][0]


@pytest.fixture
def thousand():
    return {
        "datacenter": "dc1",
        "clusters": [
            {
                "name": "gpu",
                "hosts": [{"name": "esx{n}", "count": 16, "memory_gib": 2048, "gpus": [{"board": "A40", "count": 2}]}],
            }
        ],
        "datastores": ["ds1"],
        "vms": [
            {"name": "off-{n}", "count": 700},
            {"name": "on-{n}", "count": 200, "power": "on"},
            {"name": "gpu-{n}", "count": 100, "power": "on", "memory_locked": True, "vgpus": ["nvidia_a40-4q"]},
        ],
    }


def test_a_thousand_vms_on_sixteen_hosts_take_six_calls(start, thousand, ask):
    vcenter = start(thousand)
    vcenter.mark()
    result = ask(vcenter, demand("A40-4Q", machines=200))
    assert counted(result, "nvidia_a40-4q", "in_use", "free") == (100, 284)
    assert result["fits"]
    calls = vcenter.calls
    assert sum(calls.values()) <= 4 + 16
    assert calls == {
        "RetrieveServiceContent": 1,
        "Login": 1,
        "RetrievePropertiesEx": 2,
        "QueryConfigTarget": 1,
        "Logout": 1,
    }


def test_a12_clusters_of_one_name_in_two_datacenters_are_two(start, section, playbooks):
    own = {key: section.pop(key) for key in ("datastores", "networks", "templates", "vms", "clusters")}
    stopped = {"name": "stopped-{n}", "count": 5, "host": "esx1", "vgpus": ["nvidia_a40-48q"], "memory_locked": True}
    far = {"name": "gpu", "hosts": [{"name": "far1", "gpus": [{"board": "A40"}]}]}
    section.pop("datacenter")
    section["datacenters"] = [
        {"name": "dc1", **own, "vms": [stopped]},
        {"name": "dc2", "folder": "europe", "clusters": [far], "datastores": ["ds1"]},
    ]
    vcenter = start(section)
    run = playbooks(vcenter)
    where = {"cluster": "gpu", "datacenter": "/europe/dc2"}
    both, ambiguous, one, shown, changed, unknown = run.tasks(
        ("vgpu_availability", {"platform": "vsphere"}),
        ("vgpu_availability", {"platform": "vsphere", "cluster": "gpu"}),
        ("vgpu_availability", {"platform": "vsphere", "cluster": "gpu", "datacenter": "dc2"}),
        ("vsphere_gpu_info", where),
        ("vsphere_gpu_host", {**where, "assignment_policy": "consolidation"}),
        ("vsphere_gpu_info", {"datacenter": "dc3"}),
    )
    clusters = next(record for record in both["profiles"] if record["profile"] == "nvidia_a40-48q")["clusters"]
    # The stopped VMs of dc1 are too many for its own four GPUs, and take nothing of dc2.
    found = [(record["cluster"], record["datacenter"], record["claimed"], record["free"]) for record in clusters]
    assert found == [("gpu", "dc1", 5, 0), ("gpu", "dc2", 0, 1)]
    assert ambiguous.code == unknown.code == "nothing_selected"
    assert "datacenter" in ambiguous["error"]["hint"]
    assert "europe/dc2" in unknown["error"]["hint"]
    assert counted(one, "nvidia_a40-48q", "free") == (1,)
    assert [node["name"] for node in shown["nodes"]] == ["far1"]
    assert [host["name"] for host in changed["hosts"]] == ["far1"], changed.message
    policies = {
        host.name: host.config.graphicsConfig.sharedPassthruAssignmentPolicy for host in vcenter.all(vim.HostSystem)
    }
    assert policies == {"esx1": "performance", "esx2": "performance", "esx3": "performance", "far1": "consolidation"}


def test_options_of_the_other_platform_are_not_mixed_up(vcenter, playbooks, monkeypatch):
    run = playbooks(vcenter)
    for name in ("K8S_AUTH_USERNAME", "K8S_AUTH_PASSWORD"):
        monkeypatch.setitem(run._environment, name, "somebody else")
    result = run.task("vgpu_availability", platform="vsphere")
    assert not result.failed, result.message


def test_the_vsphere_example_in_the_documentation_works(vcenter, playbooks):
    mine = [task for task in examples("vgpu_availability") if "vsphere" in str(task)]
    results = playbooks(vcenter).run(mine)
    assert results
    assert not any(result.failed for result in results)


@pytest.mark.parametrize("version", ["9.0", "9.1"])
def test_c_vcenter_9_tells_how_many_are_left_and_the_own_count_agrees(start, section, ask, version):
    section["clusters"][0]["hosts"][0]["gpus"] = [{"board": "A40", "mode": "mixed_size"}]
    section["vms"] = [running(f"small-{n}", "nvidia_a40-8q", host="esx1") for n in (1, 2)]
    vcenter = start(section, version)
    vcenter.mark()
    result = ask(vcenter)
    shown = on_host(result, "nvidia_a40-16q", "esx1")
    # By the own count 0 to 2 fit; the server knows where the vGPUs are.
    assert (shown["free_now"], shown["free_now_at_most"], shown["exact"]) == (1, 1, True)
    assert not result.get("warnings")
    assert vcenter.calls["DirectPathProfileManagerQueryCapacity"] == 2
    assert vcenter.writes == 0


def test_c_a_capacity_of_vcenter_9_that_its_vms_do_not_explain_is_a_warning(start, section, ask):
    vcenter = start(section, "9.0")
    vcenter.control("PUT", "/behaviour", {"capacity_skew": -1})
    result = ask(vcenter, esxi_hosts=["esx1"])
    assert on_host(result, "nvidia_a40-48q", "esx1")["free_now"] == 1
    (warning,) = [text for text in result["warnings"] if "vCenter reports other free vGPUs on host esx1" in text]
    assert "instead of" in warning
