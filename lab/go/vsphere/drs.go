package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// probe asks whether a host would take the VM, without taking anything.
func (l *Lab) probe(ctx *simulator.Context, vm *simulator.VirtualMachine, host *gpuHost) *refusal {
	l.mu.Lock()
	defer l.mu.Unlock()
	if refused := l.admit(ctx, vm, host); refused != nil {
		return refused
	}
	for _, g := range host.gpus {
		g.Release(vm.Self.Value)
	}
	for _, device := range host.passthrough {
		if device.holder == vm.Self.Value {
			device.holder = ""
		}
	}
	return nil
}

// placesItself says whether DRS picks the host when the VM starts.
func placesItself(cluster *simulator.ClusterComputeResource, vm types.ManagedObjectReference) bool {
	enabled, behavior := drsFor(cluster, vm)
	return enabled && behavior != types.DrsBehaviorManual
}

// drsFor is DRS as it treats one VM: a VM can have an automation level of its own,
// or be left out (ClusterDrsVmConfigInfo).
func drsFor(cluster *simulator.ClusterComputeResource, vm types.ManagedObjectReference) (bool, types.DrsBehavior) {
	enabled, behavior := drsOf(cluster)
	config, ok := cluster.ConfigurationEx.(*types.ClusterConfigInfoEx)
	if !ok || !enabled {
		return enabled, behavior
	}
	for _, override := range config.DrsVmConfig {
		if override.Key != vm {
			continue
		}
		if override.Enabled != nil && !*override.Enabled {
			return false, ""
		}
		if override.Behavior != "" {
			return true, override.Behavior
		}
	}
	return enabled, behavior
}

var drsOverrides = map[string]types.ClusterDrsVmConfigInfo{
	"manual":    {Behavior: types.DrsBehaviorManual},
	"automated": {Behavior: types.DrsBehaviorFullyAutomated},
	"disabled":  {Enabled: types.NewBool(false)},
}

func (l *Lab) overrideDRS(ctx *simulator.Context, vm *simulator.VirtualMachine, host *gpuHost, level string) error {
	if level == "" {
		return nil
	}
	override, known := drsOverrides[level]
	cluster, ok := ctx.Map.Get(host.cluster).(*simulator.ClusterComputeResource)
	if !known || !ok {
		return fmt.Errorf("drs is manual, automated or disabled, and the VM is in a cluster: %q", level)
	}
	override.Key = vm.Self
	config := cluster.ConfigurationEx.(*types.ClusterConfigInfoEx)
	config.DrsVmConfig = append(config.DrsVmConfig, override)
	return nil
}

func drsOf(cluster *simulator.ClusterComputeResource) (bool, types.DrsBehavior) {
	config, ok := cluster.ConfigurationEx.(*types.ClusterConfigInfoEx)
	if !ok {
		return false, ""
	}
	return config.DrsConfig.Enabled != nil && *config.DrsConfig.Enabled, config.DrsConfig.DefaultVmBehavior
}

// chooseHost: the named host, or with DRS the first that fits, beginning with the
// one the VM is registered on; without DRS only that one. A real DRS weighs
// load; the lab does not.
func (l *Lab) chooseHost(ctx *simulator.Context, vm *simulator.VirtualMachine, wanted *types.ManagedObjectReference) (*gpuHost, *refusal) {
	current := l.host(vm.Runtime.Host)
	if current == nil {
		return nil, refuse(&types.InvalidState{}, "Virtual machine %s has no host.", vm.Name)
	}
	candidates := []*gpuHost{current}
	cluster, _ := ctx.Map.Get(current.cluster).(*simulator.ClusterComputeResource)
	switch {
	case wanted != nil:
		host := l.host(wanted)
		if host == nil || host.cluster != current.cluster {
			return nil, refuse(&types.InvalidArgument{InvalidProperty: "host"}, "A specified parameter was not correct: host is not in the cluster of virtual machine %s.", vm.Name)
		}
		// The API reference: if this host is not compatible, the current host
		// association is used.
		candidates = []*gpuHost{host}
		if l.probe(ctx, vm, host) != nil && host != current && l.probe(ctx, vm, current) == nil {
			candidates = []*gpuHost{current}
		}
	case cluster != nil && placesItself(cluster, vm.Self):
		for _, host := range l.clusterHosts(ctx, current.cluster) {
			if host != current {
				candidates = append(candidates, host)
			}
		}
	}
	fault := &types.NoCompatibleHost{}
	var reasons []string
	for _, host := range candidates {
		refused := l.probe(ctx, vm, host)
		if refused == nil {
			return host, nil
		}
		if len(candidates) == 1 {
			return nil, refused
		}
		fault.Host = append(fault.Host, host.ref)
		fault.Error = append(fault.Error, refused.localized())
		reasons = append(reasons, host.name+": "+refused.text)
	}
	return nil, refuse(fault, "No host is compatible with virtual machine %s. %s", vm.Name, strings.Join(reasons, " "))
}

// PowerOnMultiVMTask is the power-on through DRS. Its own success says nothing:
// each VM is started by a task of its own, which the result does not name for
// VMs that DRS manages, or stands under notAttempted (vsphere.md 6.1).
func (g *datacenterGate) PowerOnMultiVMTask(ctx *simulator.Context, req *types.PowerOnMultiVM_Task) soap.HasFault {
	lab := g.lab
	datacenter := ctx.Map.Get(req.This).(*simulator.Datacenter)
	return lab.perform(ctx, operation{
		method: "PowerOnMultiVM_Task", description: "Datacenter.powerOnVm", entity: datacenter, name: datacenter.Name,
		run: func(ctx *simulator.Context) (types.AnyType, *refusal) {
			result := types.ClusterPowerOnVmResult{}
			for _, ref := range req.Vm {
				vm := lab.vm(ctx, ref)
				if vm == nil {
					return nil, refuse(&types.ManagedObjectNotFound{Obj: ref}, "The object %s does not exist.", ref.Value)
				}
				lab.powerOnOne(ctx, vm, &result)
			}
			return result, nil
		},
	}, func(task types.ManagedObjectReference) soap.HasFault {
		return &methods.PowerOnMultiVM_TaskBody{Res: &types.PowerOnMultiVM_TaskResponse{Returnval: task}}
	})
}

func (l *Lab) powerOnOne(ctx *simulator.Context, vm *simulator.VirtualMachine, result *types.ClusterPowerOnVmResult) {
	var host *gpuHost
	var refused *refusal
	fresh := l.freshContext(ctx)
	fresh.WithLock(vm, func() {
		switch {
		case vm.Config.Template:
			_, refused = l.placeForPowerOn(fresh, vm, nil)
		case vm.Runtime.PowerState != poweredOn:
			host, refused = l.chooseHost(fresh, vm, nil)
		}
	})
	if refused != nil {
		result.NotAttempted = append(result.NotAttempted, types.ClusterNotAttemptedVmInfo{Vm: vm.Self, Fault: refused.localized()})
		return
	}
	if host != nil {
		cluster, ok := ctx.Map.Get(host.cluster).(*simulator.ClusterComputeResource)
		if enabled, behavior := drsFor(cluster, vm.Self); ok && enabled && behavior == types.DrsBehaviorManual {
			result.Recommendations = append(result.Recommendations, recommendation(vm.Self, host, cluster.Self))
			return
		}
	}
	op := l.powerOnOperation(vm, nil)
	if injected := l.faults.match(op.method, vm.Self, vm.Name); injected != nil {
		op.check = func(*simulator.Context) *refusal { return injected.refusal() }
	}
	task := l.start(ctx, op)
	attempt := types.ClusterAttemptedVmInfo{Vm: vm.Self}
	if !l.managedByDRS(ctx, vm) || l.conduct.get().DrsTask == "returned" {
		attempt.Task = &task
	}
	result.Attempted = append(result.Attempted, attempt)
}

// managedByDRS: only for other VMs does the API reference promise a task.
func (l *Lab) managedByDRS(ctx *simulator.Context, vm *simulator.VirtualMachine) bool {
	host := l.host(vm.Runtime.Host)
	if host == nil {
		return false
	}
	cluster, ok := ctx.Map.Get(host.cluster).(*simulator.ClusterComputeResource)
	if !ok {
		return false
	}
	enabled, _ := drsFor(cluster, vm.Self)
	return enabled
}

func recommendation(vm types.ManagedObjectReference, host *gpuHost, cluster types.ManagedObjectReference) types.ClusterRecommendation {
	return types.ClusterRecommendation{
		Key: vm.Value, Type: "V1", Time: time.Now(), Rating: 5, Target: &cluster,
		Reason: string(types.RecommendationReasonCodePowerOnVm), ReasonText: fmt.Sprintf("Power on virtual machine %s on host %s", vm.Value, host.name),
		Action: []types.BaseClusterAction{&types.PlacementAction{
			ClusterAction: types.ClusterAction{Type: "PlacementV1", Target: &vm}, Vm: &vm, TargetHost: &host.ref,
		}},
	}
}

// PlaceVm recommends a host with room for the vGPUs in the spec. govmomi would
// draw one at random.
func (g *clusterGate) PlaceVm(ctx *simulator.Context, req *types.PlaceVm) soap.HasFault {
	lab := g.lab
	cluster := ctx.Map.Get(req.This).(*simulator.ClusterComputeResource)
	spec := req.PlacementSpec
	stub := &simulator.VirtualMachine{}
	stub.Name = "the new virtual machine"
	stub.Self = types.ManagedObjectReference{Type: "VirtualMachine", Value: "placement"}
	stub.Config = &types.VirtualMachineConfigInfo{}
	if spec.Vm != nil {
		if vm := lab.vm(ctx, *spec.Vm); vm != nil {
			stub.Name = vm.Name
			stub.Config.Hardware.Device = vm.Config.Hardware.Device
		}
	}
	if spec.ConfigSpec != nil {
		stub.Config.DeviceGroups = spec.ConfigSpec.DeviceGroups
		for _, change := range spec.ConfigSpec.DeviceChange {
			device := change.GetVirtualDeviceConfigSpec()
			if device.Operation == types.VirtualDeviceConfigSpecOperationAdd {
				stub.Config.Hardware.Device = append(stub.Config.Hardware.Device, device.Device)
			}
		}
	}
	hosts := spec.Hosts
	if len(hosts) == 0 {
		hosts = cluster.Host
	}
	var fits []types.ManagedObjectReference
	for _, ref := range hosts {
		if host := lab.host(&ref); host != nil && lab.probe(ctx, stub, host) == nil {
			fits = append(fits, ref)
		}
	}
	if len(fits) == 0 {
		return &methods.PlaceVmBody{Res: &types.PlaceVmResponse{}}
	}
	best := fits[0]
	action := &types.PlacementAction{
		ClusterAction: types.ClusterAction{Type: "PlacementV1", Target: spec.Vm}, Vm: spec.Vm, TargetHost: &best,
		RelocateSpec: &types.VirtualMachineRelocateSpec{Host: &best, Pool: cluster.ResourcePool},
	}
	if len(spec.Datastores) > 0 {
		action.RelocateSpec.Datastore = &spec.Datastores[0]
	} else if len(cluster.Datastore) > 0 {
		action.RelocateSpec.Datastore = &cluster.Datastore[0]
	}
	return &methods.PlaceVmBody{Res: &types.PlaceVmResponse{Returnval: types.PlacementResult{
		Recommendations: []types.ClusterRecommendation{{
			Key: "1", Type: "V1", Time: time.Now(), Rating: 5, Target: &cluster.Self,
			Reason:     string(types.RecommendationReasonCodeXvmotionPlacement),
			ReasonText: "Placement of a virtual machine", Action: []types.BaseClusterAction{action},
		}},
	}}}
}
