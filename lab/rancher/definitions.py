"""Custom resource definitions of Rancher, of machines on Harvester, and of guest clusters (harvester.md 14)."""

from __future__ import annotations

from lab.harvester.definitions import ANYTHING, BOOLEAN, INTEGER, STRING, STRING_MAP, definition, fields, list_of
from lab.kubernetes.client import Json
from lab.rancher.machine_flags import SWITCH_FIELDS, TEXT_FIELDS

COUNT_OR_SHARE: Json = {"x-kubernetes-int-or-string": True, "nullable": True}
CONDITION = fields(
    type=STRING, status=STRING, reason=STRING, message=STRING, lastUpdateTime=STRING, lastTransitionTime=STRING
)
REFERENCE = fields(kind=STRING, name=STRING, namespace=STRING, apiVersion=STRING, uid=STRING)


def rancher_definitions() -> list[Json]:
    return [_cluster(), _management_cluster(), *_management(), _config(), *_machines()]


def _pool() -> Json:
    pool = fields(
        name=STRING,
        displayName=STRING,
        quantity=INTEGER | {"nullable": True},
        machineConfigRef=REFERENCE | {"nullable": True},
        etcdRole=BOOLEAN,
        controlPlaneRole=BOOLEAN,
        workerRole=BOOLEAN,
        labels=STRING_MAP,
        taints=list_of(fields(key=STRING, value=STRING, effect=STRING, timeAdded=STRING)),
        machineDeploymentLabels=STRING_MAP,
        machineDeploymentAnnotations=STRING_MAP,
        rollingUpdate=fields(maxUnavailable=COUNT_OR_SHARE, maxSurge=COUNT_OR_SHARE) | {"nullable": True},
        drainBeforeDelete=BOOLEAN,
        drainBeforeDeleteTimeout=STRING,
        nodeStartupTimeout=STRING,
        unhealthyNodeTimeout=STRING,
        maxUnhealthy=STRING,
        unhealthyRange=STRING,
        machineOS=STRING,
        paused=BOOLEAN,
        dynamicSchemaSpec=STRING,
        hostnameLengthLimit=INTEGER,
        cloudCredentialSecretName=STRING,
    )
    return pool | {"required": ["name", "machineConfigRef"]}


def _cluster() -> Json:
    rke_config = fields(
        machinePools=list_of(_pool()),
        machineGlobalConfig=ANYTHING | {"nullable": True},
        machineSelectorConfig=list_of(ANYTHING),
        chartValues=ANYTHING | {"nullable": True},
        upgradeStrategy=ANYTHING,
        registries=ANYTHING | {"nullable": True},
        etcd=ANYTHING | {"nullable": True},
    )
    return definition(
        "provisioning.cattle.io",
        "Cluster",
        "clusters",
        version="v1",
        namespaced=True,
        spec=fields(
            cloudCredentialSecretName=STRING,
            kubernetesVersion=STRING,
            rkeConfig=rke_config | {"nullable": True},
            localClusterAuthEndpoint=ANYTHING,
            enableNetworkPolicy=BOOLEAN | {"nullable": True},
        ),
        status=fields(
            ready=BOOLEAN,
            clusterName=STRING,
            clientSecretName=STRING,
            agentDeployed=BOOLEAN,
            observedGeneration=INTEGER,
            conditions=list_of(CONDITION),
        ),
        columns=(("Ready", ".status.ready", "string"), ("Kubeconfig", ".status.clientSecretName", "string")),
    )


def _management_cluster() -> Json:
    return definition(
        "management.cattle.io",
        "Cluster",
        "clusters",
        version="v3",
        spec=fields(displayName=STRING, fleetWorkspaceName=STRING, imported=BOOLEAN),
        status=fields(provider=STRING, driver=STRING, conditions=list_of(CONDITION)),
    )


def _management() -> list[Json]:
    """Return the definitions of machine drivers, tokens and settings."""
    group = "management.cattle.io"
    driver = fields(
        active=BOOLEAN, builtin=BOOLEAN, url=STRING, checksum=STRING, displayName=STRING, addCloudCredential=BOOLEAN
    )
    token = dict.fromkeys(("authProvider", "description", "expiresAt", "userId", "token", "lastUpdateTime"), STRING)
    token |= dict.fromkeys(("enabled", "expired", "isDerived"), BOOLEAN) | {"ttl": INTEGER}
    setting = dict.fromkeys(("value", "default", "source"), STRING) | {"customized": BOOLEAN}
    return [
        definition(
            group,
            "NodeDriver",
            "nodedrivers",
            version="v3",
            spec=driver,
            status=fields(appliedURL=STRING, appliedChecksum=STRING, conditions=list_of(CONDITION)),
        ),
        definition(group, "Token", "tokens", version="v3", top_level=token),
        definition(group, "Setting", "settings", version="v3", top_level=setting),
    ]


def _config() -> Json:
    """Return HarvesterConfig, which Rancher derives from the driver's flags: integers are strings, there is no spec."""
    return definition(
        "rke-machine-config.cattle.io",
        "HarvesterConfig",
        "harvesterconfigs",
        version="v1",
        namespaced=True,
        top_level=dict.fromkeys(TEXT_FIELDS, STRING) | dict.fromkeys(SWITCH_FIELDS, BOOLEAN) | {"common": ANYTHING},
    )


def _machines() -> list[Json]:
    group = "cluster.x-k8s.io"
    template = fields(metadata=fields(labels=STRING_MAP, annotations=STRING_MAP), spec=ANYTHING)
    counted = ("replicas", "readyReplicas", "availableReplicas", "updatedReplicas", "observedGeneration")
    counts = dict.fromkeys(counted, INTEGER)
    scaled = {
        "clusterName": STRING,
        "replicas": INTEGER,
        "selector": ANYTHING,
        "template": template,
        "paused": BOOLEAN,
    }
    return [
        definition(
            group,
            "MachineDeployment",
            "machinedeployments",
            namespaced=True,
            spec=fields(**scaled, strategy=ANYTHING),
            status=fields(**counts, unavailableReplicas=INTEGER, phase=STRING, conditions=list_of(CONDITION)),
        ),
        definition(
            group,
            "MachineSet",
            "machinesets",
            namespaced=True,
            spec=fields(**scaled),
            status=fields(**counts, conditions=list_of(CONDITION)),
        ),
        definition(
            group,
            "Machine",
            "machines",
            namespaced=True,
            spec=fields(clusterName=STRING, providerID=STRING, infrastructureRef=REFERENCE, bootstrap=ANYTHING),
            status=fields(
                phase=STRING,
                nodeRef=REFERENCE | {"nullable": True},
                addresses=list_of(fields(type=STRING, address=STRING)),
                failureMessage=STRING,
                failureReason=STRING,
                bootstrapReady=BOOLEAN,
                infrastructureReady=BOOLEAN,
                conditions=list_of(CONDITION),
            ),
            columns=(("Cluster", ".spec.clusterName", "string"), ("Phase", ".status.phase", "string")),
        ),
        definition(
            "rke-machine.cattle.io",
            "HarvesterMachineTemplate",
            "harvestermachinetemplates",
            version="v1",
            namespaced=True,
            spec=fields(template=fields(spec=ANYTHING)),
        ),
        definition(
            "rke-machine.cattle.io",
            "HarvesterMachine",
            "harvestermachines",
            version="v1",
            namespaced=True,
            spec=ANYTHING,
            status=fields(ready=BOOLEAN, failureMessage=STRING, failureReason=STRING, conditions=list_of(CONDITION)),
        ),
    ]


def harvester_definitions() -> list[Json]:
    """Return the definition of keys, which machines require in addition to images and networks."""
    return [
        definition(
            "harvesterhci.io",
            "KeyPair",
            "keypairs",
            namespaced=True,
            spec=fields(publicKey=STRING),
            status=fields(fingerPrint=STRING, conditions=list_of(CONDITION)),
        ),
    ]


def guest_definitions() -> list[Json]:
    """Return the definition of HelmChart, with which RKE2 installs charts."""
    return [
        definition(
            "helm.cattle.io",
            "HelmChart",
            "helmcharts",
            version="v1",
            namespaced=True,
            spec=ANYTHING,
            status=fields(jobName=STRING, conditions=list_of(CONDITION)),
        )
    ]


def operator_definitions() -> list[Json]:
    """Return the definitions that the chart of the GPU operator installs."""
    return [
        definition(
            "nvidia.com",
            "ClusterPolicy",
            "clusterpolicies",
            version="v1",
            spec=ANYTHING,
            status=fields(state=STRING, namespace=STRING, conditions=list_of(CONDITION)),
            columns=(("Status", ".status.state", "string"),),
        )
    ]
