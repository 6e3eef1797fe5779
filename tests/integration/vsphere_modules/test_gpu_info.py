"""vsphere_gpu_info: what hosts have, what runs on it, and what is not certain."""

from __future__ import annotations

import pytest
from pyVmomi import vim

from tests.integration.modules.examples import examples


def running(name, *profiles, host="esx1", **more):
    return {"name": name, "host": host, "vgpus": list(profiles), "memory_locked": True, "power": "on", **more}


def gpus(result):
    return {gpu["name"]: gpu for node in result["nodes"] for gpu in node["gpus"]}


def held(gpu):
    return [(slot["profile"], slot["holders"][0]["name"]) for slot in gpu["slots"] if slot["profile"]]


def test_hosts_gpus_and_boards_are_told_alike_by_all_versions(start, section, version, playbooks):
    result = playbooks(start(section, version)).task("vsphere_gpu_info")
    assert [node["name"] for node in result["nodes"]] == ["esx1", "esx2", "esx3"]
    assert list(gpus(result)) == ["esx1-00003b000", "esx1-00003d000", "esx2-00003b000", "esx2-00003d000"]
    gpu = gpus(result)["esx1-00003b000"]
    assert (gpu["board"], gpu["framebuffer_mib"], gpu["mode"], gpu["vgpu_enabled"]) == (
        "A40",
        49152,
        "time_sliced",
        True,
    )
    assert gpu["exact"]
    (slot,) = gpu["slots"]
    assert {"nvidia_a40-1b", "nvidia_a40-4q", "nvidia_a40-48c"} <= set(slot["available_profiles"])
    assert result["nodes"][0]["labels"]["cluster"] == "gpu"
    assert result["nodes"][0]["labels"]["datacenter"] == "dc1"
    assert result["vsphere"]["version"].startswith(version)


def test_running_vms_hold_vgpus_and_stopped_ones_claim_them(start, section, version, playbooks):
    section["vms"] += [
        running("trainer", "nvidia_a40-8q"),
        {"name": "later", "host": "esx1", "vgpus": ["nvidia_a40-8q", "nvidia_a40-8q"]},
    ]
    result = playbooks(start(section, version)).task("vsphere_gpu_info")
    assert held(gpus(result)["esx1-00003b000"]) == [("nvidia_a40-8q", "trainer")]
    (vgpu,) = result["vgpus"]
    assert (vgpu["node"], vgpu["gpu"]) == ("esx1", "esx1-00003b000")
    assert vgpu["spellings"]["short"].casefold() == "a40-8q"
    assert vgpu["spellings"]["vsphere"] == "nvidia_a40-8q"
    (claim,) = result["claims"]
    assert (claim["holder"]["name"], claim["profile"], claim["count"]) == ("later", "nvidia_a40-8q", 2)
    assert claim["node"] is None


def test_without_drs_a_stopped_vm_claims_on_its_host(start, section, playbooks):
    section["clusters"][0]["drs"] = "off"
    section["vms"].append({"name": "later", "host": "esx2", "vgpus": ["nvidia_a40-8q"]})
    result = playbooks(start(section)).task("vsphere_gpu_info")
    assert [claim["node"] for claim in result["claims"]] == ["esx2"]


def test_templates_claim_nothing(start, section, playbooks):
    section["templates"].append({"name": "golden", "host": "esx1", "vgpus": ["nvidia_a40-8q"]})
    result = playbooks(start(section)).task("vsphere_gpu_info")
    assert result["claims"] == []


def test_two_gpus_that_list_a_vm_with_three_vgpus_are_not_exact(start, section, playbooks):
    section["vms"].append(running("trio", *["nvidia_a40-8q"] * 3))
    vcenter = start(section)
    result = playbooks(vcenter).task("vsphere_gpu_info")
    assert {gpu["name"]: gpu["exact"] for gpu in gpus(result).values()} == {
        "esx1-00003b000": False,
        "esx1-00003d000": False,
        "esx2-00003b000": True,
        "esx2-00003d000": True,
    }
    assert "trio" in gpus(result)["esx1-00003b000"]["notes"][0]
    assert len(result["vgpus"]) == 3


def test_two_gpus_with_one_vgpu_each_are_exact(start, section, playbooks):
    section["vms"].append(running("pair", "nvidia_a40-8q", "nvidia_a40-8q"))
    result = playbooks(start(section)).task("vsphere_gpu_info")
    assert all(gpu["exact"] for gpu in gpus(result).values())
    assert [len(held(gpu)) for gpu in gpus(result).values()] == [1, 1, 0, 0]


def test_sizes_decide_which_vgpu_is_where(start, section, playbooks):
    """One GPU is pinned to 8 GB by another VM, so the vGPU of 16 GB has to be on the other."""
    section["vms"] += [
        running("pin", "nvidia_a40-8q"),
        running("mixed", "nvidia_a40-8q", "nvidia_a40-16q", extra_config=MMIO),
    ]
    vcenter = start(section)
    result = playbooks(vcenter).task("vsphere_gpu_info")
    truth = {
        f"esx1-{gpu['address'].replace(':', '').replace('.', '')}": sorted(
            (slot["profile"], slot["vm"]) for slot in gpu["slots"]
        )
        for gpu in vcenter.books["esx1"]
    }
    shown = {name: sorted(held(gpu)) for name, gpu in gpus(result).items() if name.startswith("esx1")}
    assert [sorted(p for p, _vm in slots) for slots in shown.values()] == [
        sorted(p for p, _vm in slots) for slots in truth.values()
    ]
    assert all(gpu["exact"] for gpu in gpus(result).values())


MMIO = {"pciPassthru.use64bitMMIO": "TRUE", "pciPassthru.64bitMMIOSizeGB": "128"}


def test_why_a_gpu_serves_nothing_is_said(start, section, playbooks):
    hosts = section["clusters"][0]["hosts"]
    hosts[0]["gpus"] = [{"board": "A40", "graphics_type": "shared"}, {"board": "A40", "graphics_type": "direct"}]
    hosts[1]["driver"] = False
    hosts[2] |= {"gpus": [{"board": "A40"}], "maintenance": True}
    hosts.append({"name": "esx4", "gpus": [{"board": "A40"}], "connected": False})
    result = playbooks(start(section)).task("vsphere_gpu_info")
    blocked = {name: gpu["unavailable_reason"] for name, gpu in gpus(result).items()}
    assert blocked["esx1-00003b000"] == "it is not shared direct"
    assert "DirectPath" in blocked["esx1-00003d000"]
    assert "driver" in blocked["esx2-00003b000"]
    assert blocked["esx3-00003b000"] == "host esx3 is in maintenance mode"
    assert blocked["esx4-00003b000"] == "host esx4 is not connected"
    assert {finding["kind"] for finding in result["findings"]} == {"driver_missing"}
    assert [(node["ready"], node["schedulable"]) for node in result["nodes"]] == [
        (True, True),
        (True, True),
        (True, False),
        (False, True),
    ]


@pytest.mark.parametrize("mode", ["mixed_size", "mig"])
def test_modes_are_reported_and_an_empty_gpu_is_exact(start, section, playbooks, mode):
    section["clusters"][0]["hosts"][0]["gpus"] = [{"board": "A100", "mode": mode}]
    result = playbooks(start(section)).task("vsphere_gpu_info", esxi_hosts=["esx1"])
    gpu = gpus(result)["esx1-00003b000"]
    assert gpu["mode"] == mode
    assert gpu["exact"]
    offered = gpu["slots"][0]["available_profiles"]
    assert all((name.count("-") == 2) is (mode == "mig") for name in offered)
    if mode == "mig":
        assert gpu["max_instances"]["grid_a100-1-5c"] == 7
        assert gpu["max_instances"]["grid_a100-3-20c"] == 2


@pytest.mark.parametrize("old", ["7.0.3", "6.7"])
def test_before_8_0_3_mig_is_told_by_its_profiles(start, section, playbooks, old):
    section["clusters"][0]["hosts"][0]["gpus"] = [{"board": "A100", "mode": "mig"}]
    result = playbooks(start(section, old)).task("vsphere_gpu_info", esxi_hosts=["esx1"])
    assert gpus(result)["esx1-00003b000"]["mode"] == "mig"


@pytest.mark.parametrize("old", ["7.0.3", "6.7"])
def test_before_8_0_2_a_gpu_in_use_offers_its_own_type_only(start, section, playbooks, old):
    section["vms"].append(running("trainer", "nvidia_a40-8q"))
    result = playbooks(start(section, old)).task("vsphere_gpu_info")
    free = [
        slot["available_profiles"]
        for slot in gpus(result)["esx1-00003b000"]["slots"]
        if slot["available_profiles"] is not None
    ]
    assert free == [["nvidia_a40-8q"]]


def test_filters_on_clusters_hosts_gpus_and_profiles(start, section, playbooks):
    section["clusters"].append({"name": "other", "hosts": [{"name": "far1", "gpus": [{"board": "T4"}]}]})
    section["vms"].append(running("trainer", *["nvidia_a40-48q"] * 2, extra_config=MMIO | {MMIO_KEY: "256"}))
    run = playbooks(start(section))
    by_cluster, by_host, by_gpu, by_profile, by_board = run.tasks(
        ("vsphere_gpu_info", {"cluster": "other"}),
        ("vsphere_gpu_info", {"esxi_hosts": ["esx[12]"], "cluster": "gpu"}),
        ("vsphere_gpu_info", {"gpus": ["*-00003d000"]}),
        ("vsphere_gpu_info", {"profiles": ["A40-8Q"]}),
        ("vsphere_gpu_info", {"profiles": ["T4-4Q"]}),
    )
    assert [node["name"] for node in by_cluster["nodes"]] == ["far1"]
    assert [node["name"] for node in by_host["nodes"]] == ["esx1", "esx2"]
    assert set(gpus(by_gpu)) == {"esx1-00003d000", "esx2-00003d000"}
    assert [node["name"] for node in by_profile["nodes"]] == ["esx2"]
    assert [node["name"] for node in by_board["nodes"]] == ["far1"]


MMIO_KEY = "pciPassthru.64bitMMIOSizeGB"


def test_h2_an_empty_list_shows_nothing(vcenter, playbooks):
    every, *none, available = playbooks(vcenter).tasks(
        ("vsphere_gpu_info", {}),
        *(("vsphere_gpu_info", {option: []}) for option in ("esxi_hosts", "gpus", "profiles")),
        ("vgpu_availability", {"platform": "vsphere", "esxi_hosts": []}),
    )
    assert every["nodes"]
    assert [result["nodes"] for result in none] == [[], [], []]
    assert available["profiles"] == []


def test_an_unknown_profile_is_answered_with_the_nearest_ones(vcenter, playbooks):
    result = playbooks(vcenter).task("vsphere_gpu_info", profiles=["A40-5Q"])
    assert result.code == "unknown_profile"
    assert "nvidia_a40-4q" in result.message or "nvidia_a40-6q" in result.message


def test_two_vms_of_one_name_are_told_apart(start, section, playbooks):
    section["folders"] = ["a", "b"]
    section["vms"] += [running("same", "nvidia_a40-8q", folder="a"), running("same", "nvidia_a40-8q", folder="b")]
    result = playbooks(start(section)).task("vsphere_gpu_info")
    holders = [vgpu["holders"][0] for vgpu in result["vgpus"]]
    assert len({holder["namespace"] for holder in holders}) == 2
    assert {holder["name"] for holder in holders} == {"same"}


def test_a_vm_whose_profile_nobody_offers_any_more_is_a_finding(start, section, playbooks):
    section["vms"].append({"name": "stranded", "host": "esx1", "vgpus": ["nvidia_a40-8q"]})
    vcenter = start(section)
    run = playbooks(vcenter)
    assert run.task("vsphere_gpu_host", cluster="gpu", graphics_type="shared").changed
    result = run.task("vsphere_gpu_info")
    (finding,) = result["findings"]
    assert (finding["kind"], finding["device"]) == ("profile_not_offered", "stranded")
    assert "nvidia_a40-8q" in finding["text"]


def test_nothing_is_written_and_few_calls_are_made(vcenter, playbooks):
    vcenter.mark()
    playbooks(vcenter).task("vsphere_gpu_info")
    assert vcenter.writes == 0
    assert vcenter.calls == {
        "RetrieveServiceContent": 1,
        "Login": 1,
        "RetrievePropertiesEx": 2,
        "QueryConfigTarget": 1,
        "QueryOptions": 1,
        "Logout": 1,
    }


UNUSABLE = [
    ({"password": "wrong"}, "unauthorized", "administrator@vsphere.local"),
    ({"port": 1}, "bad_connection", "127.0.0.1:1"),
    ({"hostname": "vcenter.invalid"}, "bad_connection", "vcenter.invalid"),
    ({"validate_certs": True}, "bad_connection", "certificate"),
    ({"proxy_host": "127.0.0.1", "proxy_port": 1}, "bad_connection", "cannot be reached"),
]


def test_a_vcenter_that_cannot_be_used_is_named_with_the_reason(vcenter, playbooks):
    results = playbooks(vcenter).tasks(*[("vsphere_gpu_info", options) for options, _code, _words in UNUSABLE])
    for result, (_options, code, words) in zip(results, UNUSABLE, strict=True):
        assert result.code == code, result.message
        assert words in result.message


def test_a_missing_option_is_named_with_its_environment_variable(vcenter, playbooks, monkeypatch):
    run = playbooks(vcenter)
    monkeypatch.setitem(run._environment, "VMWARE_HOST", "")
    result = run.task("vsphere_gpu_info")
    assert result.code == "bad_connection"
    assert "VMWARE_HOST" in result.message


def test_a_refused_read_names_the_privilege_or_the_licence(vcenter, playbooks):
    read = {"method": "RetrievePropertiesEx", "as": "soap", "count": 1}
    forbidden = {**read, "fault": "NoPermission", "fields": {"privilegeId": "System.Read"}}
    vcenter.control("PUT", "/faults", [forbidden, {**read, "fault": "NotEnoughLicenses"}])
    first, second = playbooks(vcenter).tasks(*[("vsphere_gpu_info", {})] * 2)
    assert (first.code, second.code) == ("forbidden", "not_licensed")
    assert "System.Read" in first.message
    assert "license" in second.message


def test_a13_a_session_that_ends_in_the_middle_is_opened_again(vcenter, playbooks):
    run = playbooks(vcenter)
    vcenter.control("PUT", "/sessions", {"expire_after_calls": 3})
    result = run.task("vsphere_gpu_info")
    assert not result.failed, result.message
    assert len(gpus(result)) == 4


def test_the_examples_in_the_documentation_work(vcenter, playbooks):
    results = playbooks(vcenter).run(examples("vsphere_gpu_info"))
    assert not any(result.failed for result in results)


def evacuation(result, host="esx1"):
    return next(node for node in result["nodes"] if node["name"] == host)["evacuation"]


def test_c_whether_a_host_can_be_emptied_and_why_not(start, section, playbooks):
    section["clusters"][0] |= {"drs": "fully_automated", "drs_options": {"VgpuMMAutomationTimeoutSecs": "-1"}}
    section["vms"] = [running("trainer", "nvidia_a40-8q", host="esx1")]
    vcenter = start(section)
    run = playbooks(vcenter)
    off = run.task("vsphere_gpu_info")
    assert off["vsphere"]["hot_migrate"] is False
    assert (evacuation(off)["possible"], evacuation(off)["automatic"]) == (False, False)
    assert "vgpu.hotmigrate.enabled is not true, so VM trainer" in evacuation(off)["reasons"][0]
    assert evacuation(off)["vms"][0]["stun_times"][0] == {"bandwidth_mbps": 10000, "seconds": 7}
    assert evacuation(off, "esx2")["possible"]
    assert evacuation(off, "esx3") is None
    vcenter.content.setting.UpdateOptions([vim.option.OptionValue(key="vgpu.hotmigrate.enabled", value=True)])
    on = run.task("vsphere_gpu_info")
    assert (evacuation(on)["possible"], evacuation(on)["automatic"], evacuation(on)["reasons"]) == (True, True, [])


def test_a_host_without_room_elsewhere_cannot_be_emptied(start, section, playbooks):
    section["vms"] = [
        running(f"{host}-{n}", "nvidia_a40-48q", host=host, extra_config=MMIO)
        for host in ("esx1", "esx2")
        for n in (1, 2)
    ]
    result = playbooks(start(section | {"hot_migrate": True})).task("vsphere_gpu_info")
    assert not evacuation(result)["possible"]
    assert "No other host of cluster gpu has room for VM esx1-1, esx1-2" in evacuation(result)["reasons"][0]


@pytest.mark.parametrize(("version", "exact"), [("9.0", False), ("9.1", True)])
def test_vcenter_9_1_names_the_gpu_of_each_vgpu(start, section, playbooks, version, exact):
    section["vms"] = [running("trio", *["nvidia_a40-8q"] * 3, host="esx1")]
    vcenter = start(section, version)
    result = playbooks(vcenter).task("vsphere_gpu_info", esxi_hosts=["esx1"])
    assert not result.failed, result.message
    assert {gpu["exact"] for gpu in gpus(result).values()} == {exact}
    if exact:
        shown = [sum(1 for slot in gpu["slots"] if slot["profile"]) for _name, gpu in sorted(gpus(result).items())]
        assert shown == [len(card["slots"]) for card in vcenter.books["esx1"]]


# vCenter 9.1
@pytest.mark.parametrize("version", ["9.0", "9.1"])
def test_c_the_use_of_each_gpu_and_its_driver_are_shown_from_9_1_on(start, section, playbooks, version):
    hosts = section["clusters"][0]["hosts"]
    hosts[0]["gpus"] = [
        {"board": "A40"},
        {"board": "A40", "mode": "mixed_size"},
        {"board": "A40", "graphics_type": "direct"},
    ]
    section["vms"].append(
        {"name": "trainer", "host": "esx1", "vgpus": ["nvidia_a40-8q"], "memory_locked": True, "power": "on"}
    )
    result = playbooks(start(section, version)).task("vsphere_gpu_info", esxi_hosts=["esx1"])
    assert not result.failed, result.message
    shown = [gpu["direct_path"] for gpu in result["nodes"][0]["gpus"]]
    if version == "9.0":
        assert shown == [None] * 3
        return
    assert [one["mode"] for one in shown] == ["vGpuSameSize", "vGpuMixedSize", "directPath"]
    assert sum(one["used_memory"] for one in shown) == 8192
    assert "vGpuMixedSize" in shown[0]["configurable_modes"]
    assert {(one["driver"], one["available_memory"], one["interconnect"]) for one in shown} == {
        ("nvidia", 48 * 1024, None)
    }
