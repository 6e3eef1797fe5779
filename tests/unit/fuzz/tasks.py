"""Tasks that the worlds can answer, at least one for each module: where a search for arguments begins."""

from __future__ import annotations

from typing import Any

from tests.unit.plugins.module_utils.capv.clusters import MACHINE

Json = dict[str, Any]
_CLUSTER: Json = {
    "name": "ml",
    "kubernetes_version": "v1.34.1",
    "vcenter": {"server": "vcenter.example", "username": "capv", "password": "hush"},
    "control_plane_endpoint": {"host": "10.0.0.1"},
    "kube_vip": {"image": "kube-vip:1"},
    "ssh_authorized_keys": ["ssh-ed25519 AAAA"],
    "control_plane": {"machine": dict(MACHINE)},
    "pools": [{"name": "gpu", "machine": dict(MACHINE), "vgpus": [{"profile": "nvidia_a40-8q"}]}],
}
_VM: Json = {"name": "new", "template": "template", "cluster": "gpu", "vgpus": [{"profile": "A40-8Q"}]}

TASKS: dict[str, list[Json]] = {
    "capv_cluster": [_CLUSTER, {**_CLUSTER, "name": "other", "wait": False}, {"name": "ml", "state": "absent"}],
    "capv_info": [{"name": "ml"}, {"name": "ml", "deployment": "ml-gpu", "wait": True}],
    "harvester_addon": [
        {
            "name": "nvidia-driver-toolkit",
            "driver_location": "http://files/NVIDIA-Linux-x86_64-570.172.07-vgpu-kvm.run",
        },
        {"name": "nvidia-driver-toolkit", "state": "disabled", "wait": False},
        {"name": "pcidevices-controller", "values": {"image": {"repository": "registry.example/a"}}},
    ],
    "harvester_gpu_info": [{}, {"nodes": ["n*"]}, {"profiles": ["A2-4Q"]}],
    "harvester_mig": [
        {"gpus": ["n2-000008000"], "instances": [{"profile": "1g.5gb", "count": 3}], "relayout": True},
        {"nodes": ["n2"], "state": "disabled"},
        {"gpus": ["n1-000008000"], "mode": "time_sliced", "harvester_version": "1.9"},
    ],
    "harvester_repair": [{"permitted_devices": True}, {"claims": ["n1-*"]}],
    "harvester_reprofile": [
        {
            "nodes": ["n1"],
            "layout": [{"profile": "A2-8Q", "count": 1}],
            "vms": [{"name": "trainer", "vgpus": [{"profile": "A2-8Q"}]}],
        },
        {"gpus": ["n1-000008000"], "layout": [{"profile": "A2-4Q", "count": 4}], "take_over": True},
    ],
    "harvester_sriov_gpu": [
        {"nodes": ["n*"]},
        {"gpus": ["n2-000008000"], "state": "disabled", "disable_vgpus": True},
    ],
    "harvester_vgpu": [
        {"profile": "A2-4Q", "count": 3, "nodes": ["n1"], "wait": False},
        {"layout": [{"profile": "A2-4Q", "count": 2, "per": "gpu"}], "exclusive": True, "reprofile": True},
        {"name": "n1-000008006", "profile": "A2-4Q"},
        {"devices": [{"name": "n1-000008005", "state": "disabled"}], "reprofile": True, "wait": False},
        {"profile": "A100-1-5C", "count": 1, "enable_mig": True, "enable_sriov": True, "wait": False},
    ],
    "harvester_vgpu_vm": [
        {"name": "trainer", "vgpus": [{"profile": "A2-4Q", "count": 2}], "restart": "if_needed", "wait": False},
        {"name": "idle", "vgpus": [{"profile": "A2-4Q"}]},
        {"name": "trainer", "state": "absent", "wait": False},
    ],
    "harvester_vm_check": [
        {"vms": [{"name": "new", "disks": [{"image": "default/image", "size_gib": 40}], "networks": ["default/vlan1"]}]}
    ],
    "kubernetes_session": [{}, {"state": "absent", "path": "none"}],
    "rancher_gpu_pool": [
        {"cluster": "ml", "name": "gpu", "vgpus": [{"profile": "A2-4Q"}], "quantity": 2, "wait": False},
        {
            "cluster": "ml",
            "name": "new",
            "quantity": 1,
            "vgpus": [{"profile": "A2-4Q"}],
            "image": "default/image",
            "networks": ["default/vlan1"],
            "user_data": "#cloud-config\npackages: [a]\n",
            "wait": False,
        },
        {"cluster": "ml", "name": "gpu", "state": "absent", "wait": False},
    ],
    "vgpu_availability": [
        {},
        {"demand": [{"name": "a", "machines": 2, "vgpus": [{"profile": "A2-4Q"}]}]},
        {"platform": "vsphere", "demand": [{"name": "a", "machines": 2, "vgpus": [{"profile": "A40-8Q"}]}]},
        {"platform": "vsphere", "cluster": "gpu"},
    ],
    "vsphere_gpu_host": [
        {"cluster": "gpu", "graphics_type": "shared_direct", "assignment_policy": "consolidation"},
        {"esxi_hosts": ["esx2"], "vgpu_mode": "mixed_size"},
        {"esxi_hosts": ["esx2"], "passthrough": [{"vendor_id": "10de", "device_id": "2235"}]},
    ],
    "vsphere_gpu_info": [{}, {"cluster": "gpu", "profiles": ["A40-8Q"]}],
    "vsphere_template_check": [
        {"cluster": "gpu", "groups": [{"name": "w", "template": "template", "vgpus": [{"profile": "A40-8Q"}]}]}
    ],
    "vsphere_vgpu_vm": [
        {**_VM, "networks": [{"name": "VM Network", "dhcp4": True}], "disk_gb": 50, "datastore": "ds"},
        {**_VM, "cloud_init": {"user_data": "#cloud-config\n{}\n"}, "state": "powered_on"},
        {"name": "trainer", "vgpus": [{"profile": "A40-16Q"}], "power_cycle": "hard"},
        {"name": "idle", "vgpus": [{"profile": "A40-8Q", "count": 2}], "state": "powered_on"},
        {"name": "trainer", "state": "absent", "power_cycle": "hard"},
    ],
}
