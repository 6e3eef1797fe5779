"""vsphere_vgpu_vm changes the VM that is meant and no other: by its place, by its mark, and by its real name."""

from __future__ import annotations

from pyVmomi import vim

MODULE = "vsphere_vgpu_vm"
FOUR = "nvidia_a40-4q"
TEMPLATE = "ubuntu-22.04-efi"


def names(vcenter):
    return sorted(vm.name for vm in vcenter.all(vim.VirtualMachine) if not vm.config.template)


def mark(vcenter, name):
    options = {option.key: option.value for option in vcenter.vm(name).config.extraConfig}
    return options.get("vgpu.fleet.owner"), options.get("vgpu.fleet.stage")


def test_a1_a_vm_of_another_team_is_neither_restarted_nor_deleted(start, section, playbooks):
    section["clusters"].append({"name": "other", "hosts": [{"name": "esx9"}]})
    section["folders"] = ["team-a"]
    section["vms"] = [
        {"name": "gpu-1", "host": "esx9", "folder": "team-a", "power": "on"},
        {"name": "by-hand", "host": "esx1"},
        {"name": "marked", "host": "esx1", "extra_config": {"vgpu.fleet.owner": "team-a"}},
    ]
    vcenter = start(section)
    run, make = playbooks(vcenter), {"template": TEMPLATE, "owner": "team-b"}
    absent = {"state": "absent", "power_cycle": "hard", "owner": "team-b"}
    moid = vcenter.vm("gpu-1")._moId
    vcenter.mark()
    refused = run.tasks(
        (MODULE, {"name": "gpu-1", "cluster": "gpu", "cpus": 4, "power_cycle": "hard", **make}),
        (MODULE, {"name": "gpu-1", "cluster": "gpu", **absent}),
        (MODULE, {"name": "gpu-1", "resource_pool": "gpu/Resources", **absent}),
        (MODULE, {"name": "gpu-1", "esxi_host": "esx1", **absent}),
        (MODULE, {"moid": moid, "cluster": "gpu", **absent}),
        # No place: the mark decides.
        (MODULE, {"name": "gpu-1", **absent}),
        (MODULE, {"name": "gpu-1", "cpus": 4, "power_cycle": "hard", "owner": "team-b"}),
        # The place is true, and still nobody said that it is ours.
        (MODULE, {"name": "gpu-1", "cluster": "other", **absent}),
        (MODULE, {"name": "marked", "cluster": "gpu", "vgpus": [{"profile": FOUR}], **make}),
        (MODULE, {"name": "marked", "cluster": "gpu", "adopt": True, **absent}),
    )
    assert [result.code for result in refused] == ["vm_elsewhere"] * 5 + ["vm_not_ours"] * 5
    assert all("/dc1/vm/team-a/gpu-1" in result.message for result in refused[:8])
    assert all("belongs to owner team-a" in result.message for result in refused[8:])
    assert vcenter.writes == 0
    attached, elsewhere, adopted, again, moved, gone = run.tasks(
        # Nothing is stopped and the name is unique.
        (MODULE, {"name": "by-hand", "vgpus": [{"profile": FOUR}], "owner": "team-b"}),
        # A folder tells VMs of one name apart: nothing is there, and the other one is left alone.
        (MODULE, {"name": "gpu-1", "folder": "/dc1/vm", **absent}),
        (MODULE, {"name": "gpu-1", "cluster": "other", "owner": "team-b", "adopt": True}),
        (MODULE, {"name": "gpu-1", "cluster": "other", "owner": "team-b", "adopt": True}),
        (MODULE, {"moid": vcenter.vm("marked")._moId, "owner": "team-b", "adopt": True}),
        (MODULE, {"name": "gpu-1", **absent}),
    )
    assert attached.changed, attached.message
    assert mark(vcenter, "by-hand") == (None, None)
    assert not elsewhere.changed
    assert "/dc1/vm/team-a/gpu-1" in elsewhere["warnings"][0]
    assert adopted["diff"] == {"before": {"owner": None}, "after": {"owner": "team-b"}}
    assert adopted["vm"]["owner"] == "team-b"
    assert not again.changed
    assert moved.changed, moved.message
    assert mark(vcenter, "marked") == ("team-b", None)
    assert gone.changed, gone.message
    assert names(vcenter) == ["by-hand", "marked"]


def test_a1_a_new_vm_is_marked_and_never_by_what_its_template_carries(start, section, playbooks):
    section["templates"][0]["extra_config"] = {"vgpu.fleet.owner": "team-a", "vgpu.fleet.stage": "cloned"}
    vcenter = start(section)
    made, foreign, gone = playbooks(vcenter).tasks(
        (MODULE, {"name": "b-1", "template": TEMPLATE, "owner": "team-b", "state": "powered_on"}),
        (MODULE, {"name": "b-1", "state": "absent", "power_cycle": "hard", "owner": "team-c"}),
        (MODULE, {"name": "b-1", "state": "absent", "power_cycle": "hard", "owner": "team-b"}),
    )
    assert made["vm"]["owner"] == "team-b", made.message
    assert made["diff"]["after"]["owner"] == "team-b"
    assert foreign.code == "vm_not_ours"
    assert gone.changed, gone.message


def test_a7_datacenters_inside_folders_have_vms_like_any_other(start, section, playbooks):
    section["folder"] = "emea/prod"
    section["folders"] = ["team"]
    section["vms"] = [{"name": "app-1", "host": "esx1", "power": "on"}]
    vcenter = start(section)
    first = {"name": "t-1", "template": TEMPLATE, "cluster": "gpu", "datacenter": "dc1", "folder": "team"}
    second = {"name": "t-2", "template": TEMPLATE, "folder": "/emea/prod/dc1/vm"}
    results = playbooks(vcenter).tasks(
        (MODULE, {"name": "app-1", "datacenter": "dc1", "state": "absent"}),
        (MODULE, {"name": "app-1", "datacenter": "dc2", "state": "absent"}),
        (MODULE, first),
        (MODULE, first),
        (MODULE, second),
        (MODULE, {"name": "t-1", "datacenter": "dc1", "folder": "team", "state": "absent"}),
        (
            MODULE,
            {"name": "app-1", "datacenter": "/emea/prod/dc1", "state": "absent", "power_cycle": "hard", "adopt": True},
        ),
    )
    assert [result.code for result in results[:2]] == ["vm_not_ours", "folder_not_found"]
    assert "/emea/prod/dc1" in results[1]["error"]["hint"]
    assert [result.changed for result in results[2:]] == [True, False, True, True, True], [r.message for r in results]
    assert results[2]["vm"]["folder"] == "/emea/prod/dc1/vm/team"
    assert results[4]["vm"]["folder"] == "/emea/prod/dc1/vm"
    assert names(vcenter) == ["t-2"]


def test_a14_names_with_slash_and_percent_are_those_that_people_see(start, section, playbooks):
    section["clusters"][0] |= {"name": "gpu/a40", "resource_pools": ["50%"]}
    section["vms"] = [{"name": "100%", "host": "esx1"}, {"name": "a/b", "host": "esx1"}]
    vcenter = start(section)
    place = {"cluster": "gpu/a40", "folder": "/dc1/vm"}
    percent, slash, made, again = playbooks(vcenter).tasks(
        (MODULE, {"name": "100%", "state": "absent", "adopt": True, **place}),
        (MODULE, {"name": "a/b", "vgpus": [{"profile": FOUR}], **place}),
        (MODULE, {"name": "c/d", "template": TEMPLATE, "resource_pool": "50%", **place}),
        (MODULE, {"name": "c/d", "template": TEMPLATE, "resource_pool": "50%", **place}),
    )
    assert percent.changed, percent.message
    assert slash["vm"]["name"] == "a/b", slash.message
    assert made["vm"]["name"] == "c/d", made.message
    assert again.changed is False, again.message
    assert names(vcenter) == ["a%2fb", "c%2fd"]
