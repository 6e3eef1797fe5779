package main

import (
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// move registers a VM on another host; govmomi forgets the hosts' lists of VMs.
func (l *Lab) move(ctx *simulator.Context, vm *simulator.VirtualMachine, to *gpuHost) {
	from := vm.Runtime.Host
	if from != nil && *from == to.ref {
		return
	}
	if from != nil {
		l.editVMs(ctx, *from, func(vms []types.ManagedObjectReference) []types.ManagedObjectReference {
			return slices.DeleteFunc(slices.Clone(vms), func(ref types.ManagedObjectReference) bool { return ref == vm.Self })
		})
	}
	l.editVMs(ctx, to.ref, func(vms []types.ManagedObjectReference) []types.ManagedObjectReference {
		return append(slices.Clone(vms), vm.Self)
	})
	ref := to.ref
	ctx.Update(vm, []types.PropertyChange{
		{Name: "runtime.host", Val: &ref},
		{Name: "summary.runtime.host", Val: &ref},
	})
}

func (l *Lab) editVMs(ctx *simulator.Context, ref types.ManagedObjectReference, edit func([]types.ManagedObjectReference) []types.ManagedObjectReference) {
	host, ok := ctx.Map.Get(ref).(*simulator.HostSystem)
	if !ok {
		return
	}
	ctx.WithLock(host, func() {
		ctx.Update(host, []types.PropertyChange{{Name: "vm", Val: edit(host.Vm)}})
	})
}

func (g *vmGate) RelocateVMTask(ctx *simulator.Context, req *types.RelocateVM_Task) soap.HasFault {
	return g.relocate(ctx, "RelocateVM_Task", "VirtualMachine.relocate", req, func(task types.ManagedObjectReference) soap.HasFault {
		return &methods.RelocateVM_TaskBody{Res: &types.RelocateVM_TaskResponse{Returnval: task}}
	})
}

func (g *vmGate) MigrateVMTask(ctx *simulator.Context, req *types.MigrateVM_Task) soap.HasFault {
	relocate := &types.RelocateVM_Task{This: req.This, Spec: types.VirtualMachineRelocateSpec{Host: req.Host, Pool: req.Pool}}
	return g.relocate(ctx, "MigrateVM_Task", "VirtualMachine.migrate", relocate, func(task types.ManagedObjectReference) soap.HasFault {
		return &methods.MigrateVM_TaskBody{Res: &types.MigrateVM_TaskResponse{Returnval: task}}
	})
}

func (g *vmGate) relocate(ctx *simulator.Context, method, description string, req *types.RelocateVM_Task, answer func(types.ManagedObjectReference) soap.HasFault) soap.HasFault {
	lab, vm := g.lab, g.lab.vm(ctx, req.This)
	return lab.perform(ctx, operation{
		method: method, description: description, entity: vm, name: vm.Name,
		check: func(ctx *simulator.Context) *refusal { return lab.checkRelocate(ctx, vm, req) },
		run: func(ctx *simulator.Context) (types.AnyType, *refusal) {
			return nil, lab.relocateTo(ctx, vm, req)
		},
	}, answer)
}

func (l *Lab) checkRelocate(ctx *simulator.Context, vm *simulator.VirtualMachine, req *types.RelocateVM_Task) *refusal {
	if _, refused := l.checkDevices(l.situation(ctx, vm), req.Spec.DeviceChange); refused != nil {
		return refused
	}
	if req.Spec.Host == nil {
		return nil
	}
	host := l.host(req.Spec.Host)
	if host == nil {
		return refuse(&types.InvalidArgument{InvalidProperty: "spec.host"}, "A specified parameter was not correct: spec.host.")
	}
	if vm.Runtime.PowerState != poweredOn || *vm.Runtime.Host == host.ref {
		return nil
	}
	if len(vgpusOf(vm.Config.Hardware.Device)) > 0 && !l.hotMigrates(ctx) {
		// The vCenter setting vgpu.hotmigrate.enabled (vsphere.md 7.1).
		return refuse(&types.VMotionNotSupported{}, "Virtual machine %s has vGPUs; their hot migration is not enabled on this vCenter.", vm.Name)
	}
	return l.probe(ctx, vm, host)
}

// relocateTo moves the booking of a running VM with it.
func (l *Lab) relocateTo(ctx *simulator.Context, vm *simulator.VirtualMachine, req *types.RelocateVM_Task) *refusal {
	host := l.host(req.Spec.Host)
	from := l.host(vm.Runtime.Host)
	migrating := host != nil && host != from && vm.Runtime.PowerState == poweredOn
	if migrating {
		if refused := l.book(ctx, vm, host); refused != nil {
			return refused
		}
	}
	rest := *req
	rest.Spec.Host = nil
	body := vm.RelocateVMTask(ctx, &rest)
	_, refused := l.inner(ctx, body, func() types.ManagedObjectReference {
		return body.(*methods.RelocateVM_TaskBody).Res.Returnval
	})
	if migrating {
		left := from
		if refused != nil {
			left = host
		}
		l.vacate(ctx, vm, left)
		l.publish(ctx, host)
	}
	if refused == nil && host != nil {
		l.move(ctx, vm, host)
	}
	return refused
}

// vacate frees what a VM holds on one host only.
func (l *Lab) vacate(ctx *simulator.Context, vm *simulator.VirtualMachine, host *gpuHost) {
	l.mu.Lock()
	delete(host.reservedMB, vm.Self.Value)
	for _, g := range host.gpus {
		g.Release(vm.Self.Value)
	}
	for _, device := range host.passthrough {
		if device.holder == vm.Self.Value {
			device.holder = ""
		}
	}
	l.mu.Unlock()
	l.publish(ctx, host)
}
