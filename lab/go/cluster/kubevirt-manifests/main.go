// Command kubevirt-manifests prints the objects KubeVirt's operator would
// install, as one JSON document, so that a lab can install them without it.
package main

import (
	"encoding/json"
	"flag"
	"log"
	"os"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiregv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/components"
)

type manifests struct {
	CRDs        []*extv1.CustomResourceDefinition           `json:"crds"`
	Mutating    *admissionv1.MutatingWebhookConfiguration   `json:"mutatingWebhookConfiguration"`
	Validating  *admissionv1.ValidatingWebhookConfiguration `json:"validatingWebhookConfiguration"`
	APIServices []*apiregv1.APIService                      `json:"apiServices"`
}

var crdConstructors = []func() (*extv1.CustomResourceDefinition, error){
	components.NewVirtualMachineInstanceCrd,
	components.NewVirtualMachineCrd,
	components.NewPresetCrd,
	components.NewReplicaSetCrd,
	components.NewVirtualMachineInstanceMigrationCrd,
	components.NewKubeVirtCrd,
	components.NewVirtualMachinePoolCrd,
	components.NewVirtualMachineSnapshotCrd,
	components.NewVirtualMachineSnapshotContentCrd,
	components.NewVirtualMachineRestoreCrd,
	components.NewVirtualMachineExportCrd,
	components.NewVirtualMachineInstancetypeCrd,
	components.NewVirtualMachineClusterInstancetypeCrd,
	components.NewVirtualMachinePreferenceCrd,
	components.NewVirtualMachineClusterPreferenceCrd,
	components.NewMigrationPolicyCrd,
	components.NewVirtualMachineCloneCrd,
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("kubevirt-manifests: ")
	namespace := flag.String("namespace", "kubevirt", "namespace of the virt-api service")
	flag.Parse()

	out := manifests{
		Mutating:    components.NewVirtAPIMutatingWebhookConfiguration(*namespace),
		Validating:  components.NewVirtAPIValidatingWebhookConfiguration(*namespace),
		APIServices: components.NewVirtAPIAPIServices(*namespace),
	}
	for _, construct := range crdConstructors {
		crd, err := construct()
		if err != nil {
			log.Fatal(err)
		}
		out.CRDs = append(out.CRDs, crd)
	}
	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		log.Fatal(err)
	}
}
