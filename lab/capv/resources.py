"""API resources of a management cluster, in the version that it serves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from lab.kubernetes.resource import Resource

VERSIONS = ("v1beta2", "v1beta1")
SECRET = Resource("Secret", "secrets", "/api/v1", namespaced=True)
NAMESPACE = Resource("Namespace", "namespaces", "/api/v1")

CLUSTER_LABEL = "cluster.x-k8s.io/cluster-name"
DEPLOYMENT_LABEL = "cluster.x-k8s.io/deployment-name"
SET_LABEL = "cluster.x-k8s.io/set-name"
CONTROL_PLANE_LABEL = "cluster.x-k8s.io/control-plane"
CLONED_FROM = "cluster.x-k8s.io/cloned-from-name"
CONFIG_HASH = "lab/kubeadm-config-hash"
FINALIZER = "cluster.x-k8s.io"


@dataclass(frozen=True)
class Resources:
    """The resources of one version of Cluster API and of the provider."""

    version: str

    def _of(self, group: str, kind: str) -> Resource:
        prefix = f"/apis/{group}cluster.x-k8s.io/{self.version}"
        return Resource(kind, f"{kind.lower()}s", prefix, namespaced=True)

    @property
    def new(self) -> bool:
        return self.version == "v1beta2"

    @cached_property
    def cluster(self) -> Resource:
        return self._of("", "Cluster")

    @cached_property
    def deployment(self) -> Resource:
        return self._of("", "MachineDeployment")

    @cached_property
    def machine_set(self) -> Resource:
        return self._of("", "MachineSet")

    @cached_property
    def machine(self) -> Resource:
        return self._of("", "Machine")

    @cached_property
    def resource_set(self) -> Resource:
        return self._of("addons.", "ClusterResourceSet")

    @cached_property
    def config_template(self) -> Resource:
        return self._of("bootstrap.", "KubeadmConfigTemplate")

    @cached_property
    def control_plane(self) -> Resource:
        return self._of("controlplane.", "KubeadmControlPlane")

    @cached_property
    def vsphere_cluster(self) -> Resource:
        return self._of("infrastructure.", "VSphereCluster")

    @cached_property
    def template(self) -> Resource:
        return self._of("infrastructure.", "VSphereMachineTemplate")

    @cached_property
    def vsphere_machine(self) -> Resource:
        return self._of("infrastructure.", "VSphereMachine")

    @cached_property
    def vm(self) -> Resource:
        return self._of("infrastructure.", "VSphereVM")

    @cached_property
    def watched(self) -> tuple[Resource, ...]:
        return (
            self.cluster,
            self.deployment,
            self.machine_set,
            self.machine,
            self.resource_set,
            self.config_template,
            self.control_plane,
            self.vsphere_cluster,
            self.template,
            self.vsphere_machine,
            self.vm,
            SECRET,
        )
