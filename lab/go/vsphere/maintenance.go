package main

import (
	"strings"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// EnterMaintenanceModeTask waits until nothing runs on the host. DRS moves
// ordinary VMs away; VMs with vGPUs stay until somebody stops them (vsphere.md 7.2).
func (g *hostGate) EnterMaintenanceModeTask(ctx *simulator.Context, req *types.EnterMaintenanceMode_Task) soap.HasFault {
	lab, object := g.lab, ctx.Map.Get(req.This).(*simulator.HostSystem)
	return lab.perform(ctx, operation{
		method: "EnterMaintenanceMode_Task", description: "HostSystem.enterMaintenanceMode", entity: object, name: object.Name,
		unlocked: true,
		run: func(ctx *simulator.Context) (types.AnyType, *refusal) {
			return nil, lab.enterMaintenance(ctx, object, req.Timeout)
		},
	}, func(task types.ManagedObjectReference) soap.HasFault {
		return &methods.EnterMaintenanceMode_TaskBody{Res: &types.EnterMaintenanceMode_TaskResponse{Returnval: task}}
	})
}

func (l *Lab) enterMaintenance(ctx *simulator.Context, object *simulator.HostSystem, timeout int32) *refusal {
	deadline := time.Now().Add(time.Duration(timeout) * time.Second)
	for {
		running := l.evacuate(ctx, object)
		if len(running) == 0 {
			setRuntime(ctx, object, "inMaintenanceMode", true)
			return nil
		}
		if timeout > 0 && time.Now().After(deadline) {
			return refuse(&types.Timedout{}, "Host %s did not enter maintenance mode in %d seconds: %s still run.", object.Name, timeout, strings.Join(running, ", "))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// evacuate moves away what DRS may move, and names the VMs that stay.
func (l *Lab) evacuate(ctx *simulator.Context, object *simulator.HostSystem) []string {
	var stay []string
	var vms []types.ManagedObjectReference
	ctx.WithLock(object, func() { vms = append(vms, object.Vm...) })
	current := l.hosts[object.Self]
	for _, ref := range vms {
		vm := l.vm(ctx, ref)
		if vm == nil {
			continue
		}
		fresh := l.freshContext(ctx)
		fresh.WithLock(vm, func() {
			if vm.Runtime.PowerState != poweredOn {
				return
			}
			moves := len(vgpusOf(vm.Config.Hardware.Device)) == 0 || l.evacuatesVgpus(fresh, current.cluster)
			if moves && l.moveAway(fresh, vm, current) {
				return
			}
			stay = append(stay, vm.Name)
		})
	}
	return stay
}

func (l *Lab) moveAway(ctx *simulator.Context, vm *simulator.VirtualMachine, current *gpuHost) bool {
	cluster, ok := ctx.Map.Get(current.cluster).(*simulator.ClusterComputeResource)
	if !ok || !placesItself(cluster, vm.Self) {
		return false
	}
	for _, host := range l.clusterHosts(ctx, current.cluster) {
		if host != current && l.probe(ctx, vm, host) == nil && l.book(ctx, vm, host) == nil {
			l.vacate(ctx, vm, current)
			l.move(ctx, vm, host)
			return true
		}
	}
	return false
}

func setRuntime(ctx *simulator.Context, object *simulator.HostSystem, field string, value any) {
	ctx.WithLock(object, func() {
		ctx.Update(object, []types.PropertyChange{
			{Name: "runtime." + field, Val: value},
			{Name: "summary.runtime." + field, Val: value},
		})
	})
}

func (g *hostGate) ExitMaintenanceModeTask(ctx *simulator.Context, req *types.ExitMaintenanceMode_Task) soap.HasFault {
	lab, object := g.lab, ctx.Map.Get(req.This).(*simulator.HostSystem)
	return lab.perform(ctx, operation{
		method: "ExitMaintenanceMode_Task", description: "HostSystem.exitMaintenanceMode", entity: object, name: object.Name,
		run: func(ctx *simulator.Context) (types.AnyType, *refusal) {
			setRuntime(ctx, object, "inMaintenanceMode", false)
			return nil, nil
		},
	}, func(task types.ManagedObjectReference) soap.HasFault {
		return &methods.ExitMaintenanceMode_TaskBody{Res: &types.ExitMaintenanceMode_TaskResponse{Returnval: task}}
	})
}

func (g *hostGate) DisconnectHostTask(ctx *simulator.Context, req *types.DisconnectHost_Task) soap.HasFault {
	return g.connection(ctx, req.This, "DisconnectHost_Task", types.HostSystemConnectionStateDisconnected, func(task types.ManagedObjectReference) soap.HasFault {
		return &methods.DisconnectHost_TaskBody{Res: &types.DisconnectHost_TaskResponse{Returnval: task}}
	})
}

func (g *hostGate) ReconnectHostTask(ctx *simulator.Context, req *types.ReconnectHost_Task) soap.HasFault {
	return g.connection(ctx, req.This, "ReconnectHost_Task", types.HostSystemConnectionStateConnected, func(task types.ManagedObjectReference) soap.HasFault {
		return &methods.ReconnectHost_TaskBody{Res: &types.ReconnectHost_TaskResponse{Returnval: task}}
	})
}

func (g *hostGate) connection(ctx *simulator.Context, ref types.ManagedObjectReference, method string, state types.HostSystemConnectionState, answer func(types.ManagedObjectReference) soap.HasFault) soap.HasFault {
	object := ctx.Map.Get(ref).(*simulator.HostSystem)
	return g.lab.perform(ctx, operation{
		method: method, description: "HostSystem." + strings.TrimSuffix(method, "_Task"), entity: object, name: object.Name,
		run: func(ctx *simulator.Context) (types.AnyType, *refusal) {
			setRuntime(ctx, object, "connectionState", state)
			return nil, nil
		},
	}, answer)
}

// RebootHostTask puts a pending graphics configuration in force.
func (g *hostGate) RebootHostTask(ctx *simulator.Context, req *types.RebootHost_Task) soap.HasFault {
	lab, object := g.lab, ctx.Map.Get(req.This).(*simulator.HostSystem)
	return lab.perform(ctx, operation{
		method: "RebootHost_Task", description: "HostSystem.reboot", entity: object, name: object.Name,
		check: func(ctx *simulator.Context) *refusal {
			if !object.Runtime.InMaintenanceMode && !req.Force {
				return refuse(&types.InvalidState{}, "Host %s is not in maintenance mode.", object.Name)
			}
			return nil
		},
		run: func(ctx *simulator.Context) (types.AnyType, *refusal) {
			setRuntime(ctx, object, "bootTime", types.NewTime(time.Now()))
			lab.rebind(lab.hosts[object.Self])
			lab.activate(ctx, lab.hosts[object.Self], true)
			return nil, nil
		},
	}, func(task types.ManagedObjectReference) soap.HasFault {
		return &methods.RebootHost_TaskBody{Res: &types.RebootHost_TaskResponse{Returnval: task}}
	})
}

// Hosts come from the inventory: govmomi panics on releases it does not know.

func (g *clusterGate) AddHostTask(*types.AddHost_Task) soap.HasFault { return noNewHosts() }

func (g *folderGate) AddStandaloneHostTask(*types.AddStandaloneHost_Task) soap.HasFault {
	return noNewHosts()
}

func noNewHosts() soap.HasFault {
	return refuse(&types.NotSupported{}, "Hosts of the lab come from its scenario.").soap()
}
