"""API resources of Rancher and of its guest clusters."""

from __future__ import annotations

from lab.kubernetes.resource import Resource

CLUSTERS_NAMESPACE = "fleet-default"
CREDENTIALS_NAMESPACE = "cattle-global-data"

CLUSTER = Resource("Cluster", "clusters", "/apis/provisioning.cattle.io/v1", namespaced=True)
MANAGEMENT_CLUSTER = Resource("Cluster", "clusters", "/apis/management.cattle.io/v3")
NODE_DRIVER = Resource("NodeDriver", "nodedrivers", "/apis/management.cattle.io/v3")
TOKEN = Resource("Token", "tokens", "/apis/management.cattle.io/v3")
SETTING = Resource("Setting", "settings", "/apis/management.cattle.io/v3")
CONFIG = Resource("HarvesterConfig", "harvesterconfigs", "/apis/rke-machine-config.cattle.io/v1", namespaced=True)
_CAPI = "/apis/cluster.x-k8s.io/v1beta1"
DEPLOYMENT = Resource("MachineDeployment", "machinedeployments", _CAPI, namespaced=True)
MACHINE_SET = Resource("MachineSet", "machinesets", _CAPI, namespaced=True)
MACHINE = Resource("Machine", "machines", _CAPI, namespaced=True)
_INFRASTRUCTURE = "/apis/rke-machine.cattle.io/v1"
TEMPLATE = Resource("HarvesterMachineTemplate", "harvestermachinetemplates", _INFRASTRUCTURE, namespaced=True)
INFRA_MACHINE = Resource("HarvesterMachine", "harvestermachines", _INFRASTRUCTURE, namespaced=True)
SECRET = Resource("Secret", "secrets", "/api/v1", namespaced=True)
CONFIG_MAP = Resource("ConfigMap", "configmaps", "/api/v1", namespaced=True)

# A resource of the Harvester on which the machines are created. lab.harvester.resources has the others.
KEY_PAIR = Resource("KeyPair", "keypairs", "/apis/harvesterhci.io/v1beta1", namespaced=True)

# Resources of a guest cluster.
NODE = Resource("Node", "nodes", "/api/v1")
POD = Resource("Pod", "pods", "/api/v1", namespaced=True)
NAMESPACE = Resource("Namespace", "namespaces", "/api/v1")
DAEMON_SET = Resource("DaemonSet", "daemonsets", "/apis/apps/v1", namespaced=True)
RUNTIME_CLASS = Resource("RuntimeClass", "runtimeclasses", "/apis/node.k8s.io/v1")
HELM_CHART = Resource("HelmChart", "helmcharts", "/apis/helm.cattle.io/v1", namespaced=True)
POLICY = Resource("ClusterPolicy", "clusterpolicies", "/apis/nvidia.com/v1")

CLUSTER_NAME_LABEL = "cluster.x-k8s.io/cluster-name"
DEPLOYMENT_LABEL = "cluster.x-k8s.io/deployment-name"
SET_LABEL = "cluster.x-k8s.io/set-name"
POOL_LABEL = "rke.cattle.io/rke-machine-pool-name"
TEMPLATE_HASH_LABEL = "rke.cattle.io/machine-template-hash"
ROLE_LABELS = {
    "etcdRole": "rke.cattle.io/etcd-role",
    "controlPlaneRole": "rke.cattle.io/control-plane-role",
    "workerRole": "rke.cattle.io/worker-role",
}
LABELS_ANNOTATION = "rke.cattle.io/labels"
TAINTS_ANNOTATION = "rke.cattle.io/taints"
