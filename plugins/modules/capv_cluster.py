#!/usr/bin/python
# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: capv_cluster
short_description: Manage a Kubernetes cluster with GPUs on vSphere through Cluster API
version_added: 0.1.0
description:
  - Creates, changes and deletes a Kubernetes cluster with the Cluster API provider for vSphere (CAPV). The machines of
    the control plane and of each pool can have vGPUs or PCI passthrough devices.
  - Writes the objects C(Cluster), C(VSphereCluster), C(KubeadmControlPlane), C(VSphereMachineTemplate),
    C(KubeadmConfigTemplate) and C(MachineDeployment) to a management cluster, in the newest API versions that it serves
    and this module knows (V(v1beta2) and V(v1beta1)).
  - Templates are immutable, so the name of a template includes a hash of its content. If the content changes, Cluster
    API replaces the machines. The module deletes its own templates when nothing refers to them any more.
  - The API server checks all objects before the first one is written.
  - The module changes and deletes only objects that carry its mark. It does not ask vCenter whether the machines fit
    and takes profiles as they are. The role P(vgpu.fleet.capv_gpu_cluster#role) checks both beforehand.
options:
  name:
    description:
      - Name of the cluster, up to 40 characters.
    type: str
    required: true
  namespace:
    description:
      - Namespace of the cluster's objects. It must exist.
    type: str
    default: default
  state:
    description:
      - V(present) creates or changes the cluster. V(absent) deletes it with its machines.
    type: str
    choices: [present, absent]
    default: present
  owner:
    description:
      - The owner in the mark of the objects. The module changes and deletes only objects with the mark of this owner.
    type: str
    default: vgpu.fleet
  kubernetes_version:
    description:
      - Version of Kubernetes, such as V(v1.34.1). The templates must contain it. Required with O(state=present).
    type: str
  vcenter:
    description:
      - How the provider reaches vCenter. Required with O(state=present).
    type: dict
    suboptions:
      server:
        description: Address of vCenter.
        type: str
        required: true
      thumbprint:
        description: SHA-1 thumbprint of vCenter's certificate. Without it the provider does not verify the certificate.
        type: str
      username:
        description: User of the provider. The module stores it in a Secret.
        type: str
      password:
        description: Password of the provider. The module stores it in a Secret.
        type: str
      identity:
        description: An existing Secret or C(VSphereClusterIdentity) with credentials, instead of a user and password.
        type: dict
        suboptions:
          kind:
            description: The kind.
            type: str
            choices: [Secret, VSphereClusterIdentity]
            default: Secret
          name:
            description: The name.
            type: str
            required: true
  control_plane_endpoint:
    description:
      - Address of the API server of the new cluster. Required with O(state=present).
    type: dict
    suboptions:
      host:
        description: IP address or name.
        type: str
        required: true
      port:
        description: Port.
        type: int
        default: 6443
  kube_vip:
    description:
      - Announces O(control_plane_endpoint.host) with kube-vip, a static pod on each machine of the control plane. Leave
        it out if a load balancer has the address.
    type: dict
    suboptions:
      image:
        description: Image of kube-vip.
        type: str
        required: true
      interface:
        description: Network interface. By default kube-vip takes the one of the default route.
        type: str
  pod_cidrs:
    description:
      - Networks of the pods. The default is V(192.168.0.0/16).
    type: list
    elements: str
  service_cidrs:
    description:
      - Networks of the services.
    type: list
    elements: str
  ssh_user:
    description:
      - User for O(ssh_authorized_keys).
    type: str
    default: capv
  ssh_authorized_keys:
    description:
      - Public keys that may log in to the machines.
    type: list
    elements: str
  control_plane:
    description:
      - Machines of the control plane. Required with O(state=present).
    type: dict
    suboptions:
      replicas:
        description: Number of machines. An odd number for the control plane.
        type: int
        default: 1
      surge:
        description:
          - Number of additional machines while machines are replaced. Without a surge a machine is deleted first. For
            the control plane V(0) or V(1).
        type: int
        default: 1
      machine:
        description:
          - Fields of C(spec.template.spec) of a C(VSphereMachineTemplate), such as C(template), C(network), C(numCPUs),
            C(memoryMiB), C(diskGiB), C(datacenter), C(datastore), C(folder) and C(resourcePool). C(template) and
            C(network.devices) are required.
        type: dict
        required: true
      vgpus:
        description: The vGPUs of each machine.
        type: list
        elements: dict
        suboptions:
          profile:
            description: Name of the profile in vCenter, such as V(nvidia_a40-8q).
            type: str
            required: true
          count:
            description: Number of vGPUs.
            type: int
            default: 1
      pci_devices:
        description: The PCI passthrough devices of each machine.
        type: list
        elements: dict
        suboptions:
          vendor_id:
            description: Hexadecimal vendor ID, such as V(10de). Quote the value.
            type: str
            required: true
          device_id:
            description: Hexadecimal device ID. Quote the value.
            type: str
            required: true
          custom_label:
            description: The hardware label that the devices must have.
            type: str
          count:
            description: Number of devices.
            type: int
            default: 1
      vmx_keys:
        description:
          - Settings of the VM that the devices require, such as the size of the MMIO region. C(customVMXKeys) of the
            machine take precedence.
        type: dict
      labels:
        description: Labels of the nodes.
        type: dict
      taints:
        description:
          - Taints of the nodes. An empty list for the control plane lets its machines run workloads.
        type: list
        elements: dict
        suboptions:
          key:
            description: The key.
            type: str
            required: true
          value:
            description: The value.
            type: str
          effect:
            description: The effect.
            type: str
            choices: [NoSchedule, PreferNoSchedule, NoExecute]
            required: true
      kubeadm:
        description:
          - Further fields of the C(KubeadmConfigSpec), in the API version that the management cluster serves. Mappings
            are merged and lists appended.
        type: dict
  pools:
    description:
      - Pools of workers. Pools that are not listed stay as they are.
    type: list
    elements: dict
    suboptions:
      name:
        description: Name of the pool, up to 20 characters.
        type: str
        required: true
      state:
        description: V(absent) deletes the pool with its machines.
        type: str
        choices: [present, absent]
        default: present
      replicas:
        description: Number of machines.
        type: int
        default: 1
      surge:
        description: See O(control_plane.surge).
        type: int
        default: 1
      machine:
        description: See O(control_plane.machine). Required with O(pools[].state=present).
        type: dict
      vgpus:
        description: See O(control_plane.vgpus).
        type: list
        elements: dict
        suboptions:
          profile:
            description: Name of the profile in vCenter.
            type: str
            required: true
          count:
            description: Number of vGPUs.
            type: int
            default: 1
      pci_devices:
        description: See O(control_plane.pci_devices).
        type: list
        elements: dict
        suboptions:
          vendor_id:
            description: Hexadecimal vendor ID.
            type: str
            required: true
          device_id:
            description: Hexadecimal device ID.
            type: str
            required: true
          custom_label:
            description: The hardware label that the devices must have.
            type: str
          count:
            description: Number of devices.
            type: int
            default: 1
      vmx_keys:
        description: See O(control_plane.vmx_keys).
        type: dict
      labels:
        description: Labels of the nodes.
        type: dict
      taints:
        description: Taints of the nodes.
        type: list
        elements: dict
        suboptions:
          key:
            description: The key.
            type: str
            required: true
          value:
            description: The value.
            type: str
          effect:
            description: The effect.
            type: str
            choices: [NoSchedule, PreferNoSchedule, NoExecute]
            required: true
      kubeadm:
        description: See O(control_plane.kubeadm).
        type: dict
  addons:
    description:
      - Manifests that Cluster API applies to the new cluster, such as a network plugin and the cloud provider of
        vSphere. Nodes are not ready without them. Requires C(ClusterResourceSet).
    type: list
    elements: dict
    suboptions:
      name:
        description: Name of the addon, up to 20 characters.
        type: str
        required: true
      manifest:
        description: The manifests as YAML. They are stored in a Secret.
        type: str
        required: true
  delete_foreign_pools:
    description:
      - Whether O(state=absent) may delete a cluster with pools that this module did not create. They are deleted with
        the cluster.
    type: bool
    default: false
  workload_kubeconfig:
    description:
      - Path of a file to write the kubeconfig of the new cluster to. Only the current user can read it. Requires
        O(wait=true).
    type: path
  wait:
    description:
      - Whether to wait until all machines are ready, or until the cluster is gone.
    type: bool
    default: true
  wait_timeout:
    description:
      - Maximum time to wait, in seconds.
    type: int
    default: 1800
  fail_fast:
    description:
      - Whether the wait ends as soon as a machine has failed.
    type: bool
    default: true
extends_documentation_fragment:
  - vgpu.fleet.harvester
attributes:
  check_mode:
    description: Sends all objects to the API server as a dry run, so invalid ones are refused.
    support: full
  diff_mode:
    description: The diff lists the objects, without their content.
    support: full
seealso:
  - module: vgpu.fleet.vsphere_template_check
  - module: vgpu.fleet.vgpu_availability
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Create a cluster with two GPU machines
  vgpu.fleet.capv_cluster:
    kubeconfig: ~/.kube/management.yaml
    name: ml
    kubernetes_version: v1.34.1
    vcenter:
      server: vcenter.example
      username: capv@vsphere.local
      password: "{{ capv_password }}"
    control_plane_endpoint:
      host: 10.0.0.10
    kube_vip:
      image: ghcr.io/kube-vip/kube-vip:v1.0.1
    control_plane:
      machine: &machine
        template: ubuntu-22.04-efi
        datacenter: dc1
        network:
          devices: [{networkName: VM Network, dhcp4: true}]
        numCPUs: 4
        memoryMiB: 16384
    pools:
      - name: gpu
        replicas: 2
        machine: *machine
        vgpus: [{profile: nvidia_a40-8q}]
    addons:
      - name: cni
        manifest: "{{ lookup('ansible.builtin.file', 'calico.yaml') }}"
    workload_kubeconfig: ~/.kube/ml.yaml

- name: Delete the cluster
  vgpu.fleet.capv_cluster:
    kubeconfig: ~/.kube/management.yaml
    name: ml
    state: absent
"""

RETURN = r"""
cluster:
  description: The cluster.
  returned: success
  type: dict
  contains:
    name:
      description: The name.
      type: str
      sample: ml
    namespace:
      description: The namespace of its objects.
      type: str
      sample: default
    api_versions:
      description: The versions of the API groups that the module used.
      type: dict
      sample: {cluster.x-k8s.io: v1beta2, infrastructure.cluster.x-k8s.io: v1beta1}
    kubeconfig:
      description: The file with the kubeconfig of the cluster, or an empty string.
      type: str
      sample: ~/.kube/ml.yaml
machines:
  description:
    - The machines after the task, in check mode as they are. A failed task has them in C(error.machines).
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the C(Machine).
      type: str
      sample: ml-gpu-x7k2p-hw6dq
    pool:
      description: Name of the pool, or C(control-plane).
      type: str
      sample: gpu
    control_plane:
      description: Whether the machine is part of the control plane.
      type: bool
    vm:
      description: Name of the VM in vCenter.
      type: str
      sample: ml-gpu-x7k2p-hw6dq
    node:
      description: Name of the node, or an empty string.
      type: str
      sample: ml-gpu-x7k2p-hw6dq
    host:
      description: The ESXi host of the VM, if the provider reports it.
      type: str
      sample: esx1
    template:
      description: The C(VSphereMachineTemplate) that the machine was made from.
      type: str
      sample: ml-gpu-1a2b3c4d
    phase:
      description: The phase of the machine.
      type: str
      sample: Running
    devices:
      description: The devices of the machine.
      type: list
      elements: dict
      contains:
        profile:
          description: The vGPU profile, or an empty string.
          type: str
          sample: nvidia_a40-8q
        vendor_id:
          description: Vendor ID of a passthrough device, or an empty string.
          type: str
          sample: 10de
        device_id:
          description: Device ID of a passthrough device, or an empty string.
          type: str
          sample: 20b5
        custom_label:
          description: The hardware label, or an empty string.
          type: str
          sample: ""
    state:
      description: One of V(ready), V(pending), V(failed) and V(deleting).
      type: str
      sample: ready
    reason:
      description: The reason of the condition that keeps the machine from being ready.
      type: str
      sample: TaskFailed
    message:
      description: The text of that condition.
      type: str
      sample: ""
pools_replaced:
  description: Pools whose machines were made from another template, so that Cluster API replaces them.
  returned: success
  type: list
  elements: str
  sample: [gpu]
steps:
  description: The objects that the task created, updated and deleted, or in check mode would.
  returned: success
  type: list
  elements: str
  sample: [create Cluster ml]
kept:
  description: Sentences about objects that stay.
  returned: success
  type: list
  elements: str
  sample: []
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.capv.request import request_from
from ..module_utils.capv.run import ClusterChange
from ..module_utils.device_options import device_spec
from ..module_utils.kube import connection
from ..module_utils.kube.client import ApiClient
from ..module_utils.kube.options import connection_spec, fail_fast_spec
from ..module_utils.module import finish, reporting_errors


def group_spec() -> dict[str, dict[str, object]]:
    taint = {
        "key": {"type": "str", "required": True, "no_log": False},
        "value": {"type": "str"},
        "effect": {"type": "str", "choices": ["NoSchedule", "PreferNoSchedule", "NoExecute"], "required": True},
    }
    return {
        "replicas": {"type": "int", "default": 1},
        "surge": {"type": "int", "default": 1},
        "machine": {"type": "dict"},
        **device_spec(),
        "vmx_keys": {"type": "dict", "no_log": False},
        "labels": {"type": "dict"},
        "taints": {"type": "list", "elements": "dict", "options": taint},
        "kubeadm": {"type": "dict"},
    }


def argument_spec() -> dict[str, dict[str, object]]:
    state = {"type": "str", "choices": ["present", "absent"], "default": "present"}
    identity = {
        "kind": {"type": "str", "choices": ["Secret", "VSphereClusterIdentity"], "default": "Secret"},
        "name": {"type": "str", "required": True},
    }
    vcenter = {
        "server": {"type": "str", "required": True},
        "thumbprint": {"type": "str"},
        "username": {"type": "str"},
        "password": {"type": "str", "no_log": True},
        "identity": {"type": "dict", "options": identity},
    }
    return {
        **connection_spec(),
        "name": {"type": "str", "required": True},
        "namespace": {"type": "str", "default": "default"},
        "state": state,
        "owner": {"type": "str", "default": "vgpu.fleet"},
        "kubernetes_version": {"type": "str"},
        "vcenter": {"type": "dict", "options": vcenter},
        "control_plane_endpoint": {
            "type": "dict",
            "options": {"host": {"type": "str", "required": True}, "port": {"type": "int", "default": 6443}},
        },
        "kube_vip": {
            "type": "dict",
            "options": {"image": {"type": "str", "required": True}, "interface": {"type": "str"}},
        },
        "pod_cidrs": {"type": "list", "elements": "str"},
        "service_cidrs": {"type": "list", "elements": "str"},
        "ssh_user": {"type": "str", "default": "capv"},
        "ssh_authorized_keys": {"type": "list", "elements": "str", "no_log": False},
        "control_plane": {"type": "dict", "options": {**group_spec(), "machine": {"type": "dict", "required": True}}},
        "pools": {
            "type": "list",
            "elements": "dict",
            "options": {"name": {"type": "str", "required": True}, "state": state, **group_spec()},
        },
        "addons": {
            "type": "list",
            "elements": "dict",
            "options": {
                "name": {"type": "str", "required": True},
                "manifest": {"type": "str", "required": True, "no_log": True},
            },
        },
        "delete_foreign_pools": {"type": "bool", "default": False},
        "workload_kubeconfig": {"type": "path"},
        "wait": {"type": "bool", "default": True},
        "wait_timeout": {"type": "int", "default": 1800},
        **fail_fast_spec(),
    }


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    params = module.params
    with reporting_errors(module):
        request = request_from(params)
        api = ApiClient(connection.from_options(params), fail_fast=params["fail_fast"])
        change = ClusterChange(api, request, wait=params["wait"], seconds=params["wait_timeout"])
        if params["state"] == "absent":
            result = change.remove(check_mode=module.check_mode, foreign_pools=params["delete_foreign_pools"])
        else:
            result = change.ensure(check_mode=module.check_mode, kubeconfig=params["workload_kubeconfig"] or "")
        finish(module, result)


if __name__ == "__main__":
    main()
