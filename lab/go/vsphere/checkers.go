package main

import (
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/simulator/vpx"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// The dry runs of both checkers: same rules, nothing changed.

// answerChecks: a task belongs to an entity of the inventory, which a checker is not.
func (g gate) answerChecks(ctx *simulator.Context, subject *types.ManagedObjectReference, method string, run func(*simulator.Context) (types.AnyType, *refusal), answer func(types.ManagedObjectReference) soap.HasFault) soap.HasFault {
	if subject == nil || ctx.Map.Get(*subject) == nil {
		subject = &vpx.RootFolder.Self
	}
	entity := ctx.Map.Get(*subject).(mo.Entity)
	return g.lab.perform(ctx, operation{
		method: method, description: "VirtualMachineChecker." + method, entity: entity, name: entity.Entity().Name, run: run,
	}, answer)
}

// hostsToCheck: the named host, or all hosts of the pool or of the VM's cluster.
func (l *Lab) hostsToCheck(ctx *simulator.Context, vm *simulator.VirtualMachine, host, pool *types.ManagedObjectReference) []*gpuHost {
	switch {
	case host != nil:
		if h := l.host(host); h != nil {
			return []*gpuHost{h}
		}
	case pool != nil:
		if object, ok := ctx.Map.Get(*pool).(*simulator.ResourcePool); ok {
			return l.clusterHosts(ctx, object.Owner)
		}
	case vm != nil:
		if h := l.host(vm.Runtime.Host); h != nil {
			return []*gpuHost{h}
		}
	}
	return nil
}

func (g *checkerGate) CheckPowerOnTask(ctx *simulator.Context, req *types.CheckPowerOn_Task) soap.HasFault {
	lab := g.lab
	return g.answerChecks(ctx, &req.Vm, "CheckPowerOn_Task", func(ctx *simulator.Context) (types.AnyType, *refusal) {
		vm := lab.vm(ctx, req.Vm)
		if vm == nil {
			return nil, refuse(&types.ManagedObjectNotFound{Obj: req.Vm}, "The object %s does not exist.", req.Vm.Value)
		}
		results := types.ArrayOfCheckResult{}
		for _, host := range lab.hostsToCheck(ctx, vm, req.Host, req.Pool) {
			result := types.CheckResult{Vm: &req.Vm, Host: &host.ref}
			for _, refused := range []*refusal{lab.probe(ctx, vm, host), lab.checkStart(vm)} {
				if refused != nil {
					result.Error = append(result.Error, refused.localized())
				}
			}
			results.CheckResult = append(results.CheckResult, result)
		}
		return results, nil
	}, func(task types.ManagedObjectReference) soap.HasFault {
		return &methods.CheckPowerOn_TaskBody{Res: &types.CheckPowerOn_TaskResponse{Returnval: task}}
	})
}

func (g *checkerGate) CheckVmConfigTask(ctx *simulator.Context, req *types.CheckVmConfig_Task) soap.HasFault {
	lab := g.lab
	return g.answerChecks(ctx, req.Vm, "CheckVmConfig_Task", func(ctx *simulator.Context) (types.AnyType, *refusal) {
		var vm *simulator.VirtualMachine
		if req.Vm != nil {
			vm = lab.vm(ctx, *req.Vm)
		}
		hosts := lab.hostsToCheck(ctx, vm, req.Host, req.Pool)
		if len(hosts) == 0 {
			return nil, refuse(&types.InvalidArgument{InvalidProperty: "host"}, "One of vm, host and pool is needed.")
		}
		results := types.ArrayOfCheckResult{}
		for _, host := range hosts {
			result := types.CheckResult{Vm: req.Vm, Host: &host.ref}
			at := deviceSituation{
				vmName: req.Spec.Name, hardware: req.Spec.Version, power: poweredOff, offered: map[string]bool{},
				knownNetwork: lab.networksAround(ctx, lab.hostObject(ctx, host)),
			}
			if vm != nil {
				at = lab.situation(ctx, vm)
				at.offered = map[string]bool{}
			}
			lab.mu.Lock()
			for _, profile := range host.profiles() {
				at.offered[profile.Name] = true
			}
			lab.mu.Unlock()
			if _, refused := lab.checkDevices(at, slices.Clone(req.Spec.DeviceChange)); refused != nil {
				result.Error = append(result.Error, refused.localized())
			}
			at.groupsOffered = lab.groupsOf([]*gpuHost{host})
			if refused := lab.checkGroupChange(at, &req.Spec); refused != nil {
				result.Error = append(result.Error, refused.localized())
			}
			if vm != nil {
				if refused := lab.checkScalars(vm, &req.Spec); refused != nil {
					result.Error = append(result.Error, refused.localized())
				}
			}
			results.CheckResult = append(results.CheckResult, result)
		}
		return results, nil
	}, func(task types.ManagedObjectReference) soap.HasFault {
		return &methods.CheckVmConfig_TaskBody{Res: &types.CheckVmConfig_TaskResponse{Returnval: task}}
	})
}

func (g *checkerGate) CheckCompatibilityTask(ctx *simulator.Context, req *types.CheckCompatibility_Task) soap.HasFault {
	lab := g.lab
	return g.answerChecks(ctx, &req.Vm, "CheckCompatibility_Task", func(ctx *simulator.Context) (types.AnyType, *refusal) {
		vm := lab.vm(ctx, req.Vm)
		if vm == nil {
			return nil, refuse(&types.ManagedObjectNotFound{Obj: req.Vm}, "The object %s does not exist.", req.Vm.Value)
		}
		results := types.ArrayOfCheckResult{}
		for _, host := range lab.hostsToCheck(ctx, vm, req.Host, req.Pool) {
			result := types.CheckResult{Vm: &req.Vm, Host: &host.ref}
			if refused := lab.probe(ctx, vm, host); refused != nil {
				result.Error = append(result.Error, refused.localized())
			}
			results.CheckResult = append(results.CheckResult, result)
		}
		return results, nil
	}, func(task types.ManagedObjectReference) soap.HasFault {
		return &methods.CheckCompatibility_TaskBody{Res: &types.CheckCompatibility_TaskResponse{Returnval: task}}
	})
}

func (g *provisioningGate) CheckCloneTask(ctx *simulator.Context, req *types.CheckClone_Task) soap.HasFault {
	lab := g.lab
	return g.answerChecks(ctx, &req.Vm, "CheckClone_Task", func(ctx *simulator.Context) (types.AnyType, *refusal) {
		source := lab.vm(ctx, req.Vm)
		if source == nil {
			return nil, refuse(&types.ManagedObjectNotFound{Obj: req.Vm}, "The object %s does not exist.", req.Vm.Value)
		}
		result := types.CheckResult{Vm: &req.Vm}
		wish := &types.CloneVM_Task{This: req.Vm, Folder: req.Folder, Name: req.Name, Spec: req.Spec}
		if refused := lab.checkClone(ctx, source, wish); refused != nil {
			result.Error = append(result.Error, refused.localized())
		}
		return types.ArrayOfCheckResult{CheckResult: []types.CheckResult{result}}, nil
	}, func(task types.ManagedObjectReference) soap.HasFault {
		return &methods.CheckClone_TaskBody{Res: &types.CheckClone_TaskResponse{Returnval: task}}
	})
}
