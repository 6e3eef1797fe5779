package main

import (
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

func (g *vmGate) ReconfigVMTask(ctx *simulator.Context, req *types.ReconfigVM_Task) soap.HasFault {
	lab, vm := g.lab, g.lab.vm(ctx, req.This)
	return lab.perform(ctx, operation{
		method: "ReconfigVM_Task", description: "VirtualMachine.reconfigure", entity: vm, name: vm.Name,
		check: func(ctx *simulator.Context) *refusal { return lab.checkReconfigure(ctx, vm, &req.Spec) },
		run: func(ctx *simulator.Context) (types.AnyType, *refusal) {
			return nil, lab.reconfigure(ctx, vm, &req.Spec)
		},
	}, func(task types.ManagedObjectReference) soap.HasFault {
		return &methods.ReconfigVM_TaskBody{Res: &types.ReconfigVM_TaskResponse{Returnval: task}}
	})
}

func (l *Lab) checkReconfigure(ctx *simulator.Context, vm *simulator.VirtualMachine, spec *types.VirtualMachineConfigSpec) *refusal {
	if spec.ChangeVersion != "" && spec.ChangeVersion != vm.Config.ChangeVersion {
		return refuse(&types.ConcurrentAccess{}, "Virtual machine %s was changed meanwhile: change version %s is not %s.", vm.Name, spec.ChangeVersion, vm.Config.ChangeVersion)
	}
	if spec.Version != "" && spec.Version != vm.Config.Version {
		// Upgrading is a task of its own (vsphere.md 5.4).
		return refuse(&types.InvalidArgument{InvalidProperty: "configSpec.version"}, "The hardware version of virtual machine %s can only be upgraded.", vm.Name)
	}
	if refused := l.checkScalars(vm, spec); refused != nil {
		return refused
	}
	at := l.situation(ctx, vm)
	if _, refused := l.checkDevices(at, spec.DeviceChange); refused != nil {
		return refused
	}
	return l.checkGroupChange(at, spec)
}

func (l *Lab) checkScalars(vm *simulator.VirtualMachine, spec *types.VirtualMachineConfigSpec) *refusal {
	if refused := reservedOption(spec.ExtraConfig); refused != nil {
		return refused
	}
	locked := vm.Config.MemoryReservationLockedToMax
	if spec.MemoryReservationLockedToMax != nil {
		locked = spec.MemoryReservationLockedToMax
	}
	if locked != nil && *locked && (spec.MemoryReservationLockedToMax != nil || spec.MemoryMB != 0) {
		if refused := l.checkReservable(vm, memoryAfter(vm, spec)); refused != nil {
			return refused
		}
	}
	if vm.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOff {
		return nil
	}
	hot := func(enabled *bool) bool {
		return enabled != nil && *enabled && vm.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn
	}
	changes := map[string]bool{
		"firmware": spec.Firmware != "" && spec.Firmware != vm.Config.Firmware,
		"memoryMB": spec.MemoryMB != 0 && spec.MemoryMB != int64(vm.Config.Hardware.MemoryMB) && !hot(vm.Config.MemoryHotAddEnabled),
		"numCPUs":  spec.NumCPUs != 0 && spec.NumCPUs != vm.Config.Hardware.NumCPU && !hot(vm.Config.CpuHotAddEnabled),
	}
	for _, field := range []string{"firmware", "memoryMB", "numCPUs"} {
		if changes[field] {
			return refuse(&types.InvalidPowerState{
				RequestedState: types.VirtualMachinePowerStatePoweredOff, ExistingState: vm.Runtime.PowerState,
			}, "%s of virtual machine %s cannot be changed while it is %s.", field, vm.Name, vm.Runtime.PowerState)
		}
	}
	return nil
}

// reservedOption: govmomi starts containers for these keys; the lab never does.
func reservedOption(options []types.BaseOptionValue) *refusal {
	for _, option := range options {
		if key := option.GetOptionValue().Key; strings.HasPrefix(key, "RUN.") {
			return refuse(&types.InvalidArgument{InvalidProperty: "configSpec.extraConfig"}, "The option %s is reserved.", key)
		}
	}
	return nil
}

func memoryAfter(vm *simulator.VirtualMachine, spec *types.VirtualMachineConfigSpec) int64 {
	if spec.MemoryMB != 0 {
		return spec.MemoryMB
	}
	return int64(vm.Config.Hardware.MemoryMB)
}

// checkReservable: all memory must be reservable when the lock is set (vsphere.md 1.3).
func (l *Lab) checkReservable(vm *simulator.VirtualMachine, memoryMB int64) *refusal {
	host := l.host(vm.Runtime.Host)
	if host == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var unreserved int64
	if vm.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn {
		unreserved = host.unreservedMB(vm.Self.Value)
	} else {
		unreserved = l.largestHostMB(host.cluster)
	}
	return tooMuchMemory(vm.Name, memoryMB, unreserved)
}

func tooMuchMemory(vm string, wantedMB, unreservedMB int64) *refusal {
	if wantedMB <= unreservedMB {
		return nil
	}
	return refuse(&types.InsufficientMemoryResourcesFault{Unreserved: unreservedMB << 20, Requested: wantedMB << 20},
		"The available memory resources are insufficient: %d MB are wanted for virtual machine %s and %d MB can be reserved.", wantedMB, vm, unreservedMB)
}

// largestHostMB is the most memory that a VM of the cluster could ever reserve; l.mu is held.
func (l *Lab) largestHostMB(cluster types.ManagedObjectReference) int64 {
	var most int64
	for _, host := range l.hosts {
		if host.cluster == cluster {
			most = max(most, host.memoryMB)
		}
	}
	return most
}

// unreservedMB leaves out what the VM itself has reserved.
func (h *gpuHost) unreservedMB(except string) int64 {
	free := h.memoryMB
	for holder, reserved := range h.reservedMB {
		if holder != except {
			free -= reserved
		}
	}
	return free
}

// reconfigure applies a checked spec, all or nothing: govmomi writes the scalar
// fields before it looks at the devices, so its refusal must be undone.
func (l *Lab) reconfigure(ctx *simulator.Context, vm *simulator.VirtualMachine, spec *types.VirtualMachineConfigSpec) *refusal {
	l.number(vm.Config.Hardware.Device, spec.DeviceChange)
	groups := numberGroups(vm, spec)
	l.followLock(vm, spec)
	before := simulator.Checkpoint(vm).(*mo.VirtualMachine)
	body := vm.ReconfigVMTask(ctx, &types.ReconfigVM_Task{This: vm.Self, Spec: *spec})
	_, refused := l.inner(ctx, body, func() types.ManagedObjectReference {
		return body.(*methods.ReconfigVM_TaskBody).Res.Returnval
	})
	if refused != nil {
		before.RecentTask = vm.RecentTask
		ctx.Update(vm, simulator.PropertyDiff(vm, before))
		return refused
	}
	vm.Config.DeviceGroups = groups
	l.showResources(ctx, vm)
	return nil
}

// followLock keeps the reservation equal to the memory size while it is locked.
func (l *Lab) followLock(vm *simulator.VirtualMachine, spec *types.VirtualMachineConfigSpec) {
	locked := vm.Config.MemoryReservationLockedToMax
	if spec.MemoryReservationLockedToMax != nil {
		locked = spec.MemoryReservationLockedToMax
	}
	if spec.MemoryAllocation == nil && (locked == nil || !*locked) {
		return
	}
	allocation := types.ResourceAllocationInfo{}
	if vm.Config.MemoryAllocation != nil {
		allocation = *vm.Config.MemoryAllocation
	}
	if wanted := spec.MemoryAllocation; wanted != nil {
		if wanted.Reservation != nil {
			allocation.Reservation = wanted.Reservation
		}
		if wanted.Limit != nil {
			allocation.Limit = wanted.Limit
		}
		if wanted.Shares != nil {
			allocation.Shares = wanted.Shares
		}
	}
	if locked != nil && *locked {
		allocation.Reservation = types.NewInt64(memoryAfter(vm, spec))
	}
	spec.MemoryAllocation = &allocation
}

// showResources fills what govmomi leaves out: vm.resourceConfig, and two states
// without which clients cannot read vm.runtime as a whole.
func (l *Lab) showResources(ctx *simulator.Context, vm *simulator.VirtualMachine) {
	entity := vm.Self
	modified := vm.Config.Modified
	ctx.Update(vm, []types.PropertyChange{
		{Name: "resourceConfig", Val: &types.ResourceConfigSpec{
			Entity: &entity, ChangeVersion: vm.Config.ChangeVersion, LastModified: &modified,
			CpuAllocation: *vm.Config.CpuAllocation, MemoryAllocation: *vm.Config.MemoryAllocation,
		}},
	})
	for _, prefix := range []string{"runtime.", "summary.runtime."} {
		ctx.Update(vm, []types.PropertyChange{
			{Name: prefix + "faultToleranceState", Val: types.VirtualMachineFaultToleranceStateNotConfigured},
			{Name: prefix + "recordReplayState", Val: types.VirtualMachineRecordReplayStateInactive},
		})
	}
}
