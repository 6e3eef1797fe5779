// Command virt-api is KubeVirt's virt-api with patience.
//
// The original computes for seconds before it looks at the cluster, and gives up
// if the API server is not there by then: in a cluster a kubelet starts it again.
// This one waits, so that it can be started together with the API server.
package main

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"kubevirt.io/client-go/kubecli"
	"kubevirt.io/client-go/log"

	"kubevirt.io/kubevirt/pkg/service"
	"kubevirt.io/kubevirt/pkg/util"
	virtapi "kubevirt.io/kubevirt/pkg/virt-api"
)

const (
	pollInterval = 100 * time.Millisecond
	patience     = 2 * time.Minute
)

func main() {
	log.InitializeLogging("virt-api")
	app := virtapi.NewVirtApi()
	service.Setup(app)
	if err := waitForAPIServer(); err != nil {
		panic(err)
	}
	app.Execute()
}

// waitForAPIServer returns once the API server has published how it authenticates
// to aggregated API servers, which virt-api reads first.
func waitForAPIServer() error {
	client, err := kubecli.GetKubevirtClient()
	if err != nil {
		return err
	}
	configMaps := client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	return wait.PollUntilContextTimeout(context.Background(), pollInterval, patience, true,
		func(ctx context.Context) (bool, error) {
			_, err := configMaps.Get(ctx, util.ExtensionAPIServerAuthenticationConfigMap, metav1.GetOptions{})
			return err == nil, nil
		})
}
