package main

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"vgpu-fleet.example/lab/vsphere/admission"
)

const (
	poweredOn  = types.VirtualMachinePowerStatePoweredOn
	poweredOff = types.VirtualMachinePowerStatePoweredOff
)

func (g *vmGate) PowerOnVMTask(ctx *simulator.Context, req *types.PowerOnVM_Task) soap.HasFault {
	lab, vm := g.lab, g.lab.vm(ctx, req.This)
	return lab.perform(ctx, lab.powerOnOperation(vm, req.Host), func(task types.ManagedObjectReference) soap.HasFault {
		return &methods.PowerOnVM_TaskBody{Res: &types.PowerOnVM_TaskResponse{Returnval: task}}
	})
}

func (l *Lab) powerOnOperation(vm *simulator.VirtualMachine, host *types.ManagedObjectReference) operation {
	return operation{
		method: "PowerOnVM_Task", description: "VirtualMachine.powerOn", entity: vm, name: vm.Name,
		check: func(ctx *simulator.Context) *refusal {
			_, refused := l.placeForPowerOn(ctx, vm, host)
			return refused
		},
		run: func(ctx *simulator.Context) (types.AnyType, *refusal) { return nil, l.powerOn(ctx, vm, host) },
	}
}

// powerOn books the GPUs, moves the VM to the chosen host and starts it.
func (l *Lab) powerOn(ctx *simulator.Context, vm *simulator.VirtualMachine, wanted *types.ManagedObjectReference) *refusal {
	host, refused := l.placeForPowerOn(ctx, vm, wanted)
	if refused != nil {
		return refused
	}
	if refused := l.book(ctx, vm, host); refused != nil {
		return refused
	}
	l.move(ctx, vm, host)
	body := vm.PowerOnVMTask(ctx, &types.PowerOnVM_Task{This: vm.Self})
	_, refused = l.inner(ctx, body, func() types.ManagedObjectReference {
		return body.(*methods.PowerOnVM_TaskBody).Res.Returnval
	})
	if refused != nil {
		l.release(ctx, vm.Self)
		return refused
	}
	l.mu.Lock()
	l.shareGraphics(vm, host)
	l.mu.Unlock()
	l.publish(ctx, host)
	l.bootGuest(ctx, vm, true)
	l.version.forget(vm.Config)
	return nil
}

// placeForPowerOn finds the host a VM would start on, or why it would not start.
func (l *Lab) placeForPowerOn(ctx *simulator.Context, vm *simulator.VirtualMachine, wanted *types.ManagedObjectReference) (*gpuHost, *refusal) {
	if vm.Config.Template {
		return nil, refuse(&types.InvalidState{}, "%s is a template and cannot be powered on.", vm.Name)
	}
	if vm.Runtime.PowerState == poweredOn {
		return nil, refuse(&types.InvalidPowerState{RequestedState: poweredOn, ExistingState: poweredOn},
			"The attempted operation cannot be performed in the current state (%s) of virtual machine %s.", poweredOn, vm.Name)
	}
	host, refused := l.chooseHost(ctx, vm, wanted)
	if refused != nil {
		return nil, refused
	}
	// These come from the VM's own process, after placement.
	return host, l.checkStart(vm)
}

// checkStart: prerequisites that a real host only finds when the VM starts.
func (l *Lab) checkStart(vm *simulator.VirtualMachine) *refusal {
	vgpus := vgpusOf(vm.Config.Hardware.Device)
	if len(vgpus) == 0 {
		return nil
	}
	if locked := vm.Config.MemoryReservationLockedToMax; locked == nil || !*locked {
		return startFailure("Invalid memory setting: memory reservation (sched.mem.min) should be equal to memsize(%d).", vm.Config.Hardware.MemoryMB)
	}
	if refused := l.checkFractions(vm, vgpus); refused != nil {
		return refused
	}
	return l.checkMmio(vm, vgpus)
}

// checkFractions: before 8.0 several vGPUs of series C in one VM must each have a
// whole GPU (nvidia.md 5.1). How a real host words it is unknown; it fails when the
// vGPU's plugin starts.
func (l *Lab) checkFractions(vm *simulator.VirtualMachine, vgpus []string) *refusal {
	if l.version.has("8.0.0.0") || len(vgpus) < 2 {
		return nil
	}
	for _, name := range vgpus {
		profile, known := l.profile(name)
		if known && profile.Series == "C" && (profile.MigSlices > 0 || profile.MaxPerGpu > 1) {
			return startFailure("Could not initialize plugin '/usr/lib64/vmware/plugin/libnvidia-vgx.so' for vGPU '%s' of virtual machine %s.", name, vm.Name)
		}
	}
	return nil
}

func startFailure(format string, args ...any) *refusal {
	refused := refuse(nil, format, args...)
	refused.fault = &types.GenericVmConfigFault{Reason: refused.text}
	return refused
}

// book takes the slots for good. It can still fail if another VM was quicker.
func (l *Lab) book(ctx *simulator.Context, vm *simulator.VirtualMachine, host *gpuHost) *refusal {
	l.mu.Lock()
	defer l.mu.Unlock()
	if refused := l.admit(ctx, vm, host); refused != nil {
		return refused
	}
	if reserved := reservation(vm); reserved > 0 {
		host.reservedMB[vm.Self.Value] = reserved
	}
	return nil
}

func reservation(vm *simulator.VirtualMachine) int64 {
	if vm.Config.MemoryAllocation == nil || vm.Config.MemoryAllocation.Reservation == nil {
		return 0
	}
	return *vm.Config.MemoryAllocation.Reservation
}

// admit books GPUs and devices for a VM on a host, all or none; l.mu is held.
func (l *Lab) admit(ctx *simulator.Context, vm *simulator.VirtualMachine, host *gpuHost) *refusal {
	holder := vm.Self.Value
	object := l.hostObject(ctx, host)
	if object.Runtime.ConnectionState != types.HostSystemConnectionStateConnected {
		return refuse(&types.HostNotConnected{}, "Host %s is %s.", host.name, object.Runtime.ConnectionState)
	}
	if object.Runtime.InMaintenanceMode {
		return refuse(&types.InvalidHostState{Host: &host.ref}, "Host %s is in maintenance mode.", host.name)
	}
	if reserved := reservation(vm); reserved > 0 {
		if free := host.unreservedMB(holder); reserved > free {
			return refuse(&types.InsufficientHostMemoryCapacityFault{
				InsufficientHostCapacityFault: types.InsufficientHostCapacityFault{Host: &host.ref},
				Unreserved:                    free << 20, Requested: reserved << 20,
			}, "Host %s has %d MB of unreserved memory; virtual machine %s reserves %d MB.", host.name, free, vm.Name, reserved)
		}
	}
	return l.admitGroups(vm, host, slices.Collect(maps.Values(vendorGroups(vm.Config.DeviceGroups))), func() *refusal {
		return l.admitDevices(vm, host)
	})
}

// admitDevices books the devices that are in no group.
func (l *Lab) admitDevices(vm *simulator.VirtualMachine, host *gpuHost) *refusal {
	bound, refused := l.bindDevices(vm, host)
	if refused != nil {
		return refused
	}
	if vgpus := vgpusOf(ungrouped(vm.Config.Hardware.Device)); len(vgpus) > 0 {
		if refused := l.assign(host, vm, vgpus); refused != nil {
			for _, device := range bound {
				device.holder = ""
			}
			return refused
		}
	}
	return nil
}

func (l *Lab) assign(host *gpuHost, vm *simulator.VirtualMachine, vgpus []string) *refusal {
	reason := admission.Assign(host.shareable(), vm.Self.Value, vgpus, host.policy, admission.Rules{PinByType: l.version.PinByType})
	if reason == nil {
		return nil
	}
	if reason.Unsupported != "" {
		return refuse(&types.DeviceNotSupported{Device: "NVIDIA GRID vGPU " + reason.Unsupported, Reason: "host"},
			"The device NVIDIA GRID vGPU %s is not supported on host %s.", reason.Unsupported, host.name)
	}
	return refuse(&types.InsufficientGraphicsResourcesFault{},
		"Graphics resources admission control failed: host %s has no room for %s of virtual machine %s (%s).", host.name, strings.Join(vgpus, ", "), vm.Name, reason)
}

// bindDevices gives free DirectPath devices of the host to the VM.
func (l *Lab) bindDevices(vm *simulator.VirtualMachine, host *gpuHost) ([]*pciDevice, *refusal) {
	var bound []*pciDevice
	for _, device := range ungrouped(vm.Config.Hardware.Device) {
		backing, ok := device.GetVirtualDevice().Backing.(*types.VirtualPCIPassthroughDynamicBackingInfo)
		if !ok {
			continue
		}
		match := host.freeDevice(backing)
		if match == nil {
			for _, other := range bound {
				other.holder = ""
			}
			return nil, refuse(&types.DeviceNotSupported{Device: "Dynamic DirectPath IO", Reason: "host"},
				"Host %s has no free device for %s of virtual machine %s.", host.name, wantedDevices(backing), vm.Name)
		}
		match.holder = vm.Self.Value
		bound = append(bound, match)
	}
	return bound, nil
}

func (h *gpuHost) freeDevice(backing *types.VirtualPCIPassthroughDynamicBackingInfo) *pciDevice {
	for _, device := range h.passthrough {
		if device.holder != "" || backing.CustomLabel != "" && backing.CustomLabel != device.spec.Label {
			continue
		}
		for _, allowed := range backing.AllowedDevice {
			if allowed.VendorId == int32(device.vendorID) && allowed.DeviceId == int32(device.deviceID) {
				return device
			}
		}
	}
	return nil
}

func wantedDevices(backing *types.VirtualPCIPassthroughDynamicBackingInfo) string {
	var names []string
	for _, allowed := range backing.AllowedDevice {
		names = append(names, strconv.FormatInt(int64(allowed.VendorId), 16)+":"+strconv.FormatInt(int64(allowed.DeviceId), 16))
	}
	text := strings.Join(names, " or ")
	if backing.CustomLabel != "" {
		text += " labelled " + backing.CustomLabel
	}
	return text
}

// bootGuest lets VMware Tools follow the power state.
func (l *Lab) bootGuest(ctx *simulator.Context, vm *simulator.VirtualMachine, running bool) {
	l.mu.Lock()
	known := l.machines[vm.Self]
	l.mu.Unlock()
	if known == nil || !known.hasTools {
		return
	}
	running = running && known.hasTools
	tools, state := types.VirtualMachineToolsRunningStatusGuestToolsNotRunning, "notRunning"
	status := types.VirtualMachineToolsStatusToolsNotRunning
	if running {
		tools, state = types.VirtualMachineToolsRunningStatusGuestToolsRunning, "running"
		status = types.VirtualMachineToolsStatusToolsOk
	}
	ctx.Update(vm, []types.PropertyChange{
		{Name: "guest.toolsRunningStatus", Val: string(tools)},
		{Name: "guest.toolsStatus", Val: status},
		{Name: "guest.guestState", Val: state},
		{Name: "summary.guest.toolsRunningStatus", Val: string(tools)},
		{Name: "summary.guest.toolsStatus", Val: status},
	})
}

func (g *vmGate) PowerOffVMTask(ctx *simulator.Context, req *types.PowerOffVM_Task) soap.HasFault {
	lab, vm := g.lab, g.lab.vm(ctx, req.This)
	return lab.perform(ctx, operation{
		method: "PowerOffVM_Task", description: "VirtualMachine.powerOff", entity: vm, name: vm.Name,
		check: func(*simulator.Context) *refusal { return powerStateMustDiffer(vm, poweredOff) },
		run: func(ctx *simulator.Context) (types.AnyType, *refusal) {
			body := vm.PowerOffVMTask(ctx, req)
			_, refused := lab.inner(ctx, body, func() types.ManagedObjectReference {
				return body.(*methods.PowerOffVM_TaskBody).Res.Returnval
			})
			if refused == nil {
				lab.bootGuest(ctx, vm, false)
			}
			return nil, refused
		},
	}, func(task types.ManagedObjectReference) soap.HasFault {
		return &methods.PowerOffVM_TaskBody{Res: &types.PowerOffVM_TaskResponse{Returnval: task}}
	})
}

func powerStateMustDiffer(vm *simulator.VirtualMachine, wanted types.VirtualMachinePowerState) *refusal {
	if vm.Runtime.PowerState != wanted {
		return nil
	}
	return refuse(&types.InvalidPowerState{RequestedState: wanted, ExistingState: wanted},
		"The attempted operation cannot be performed in the current state (%s) of virtual machine %s.", wanted, vm.Name)
}

func mustRun(vm *simulator.VirtualMachine) *refusal {
	if vm.Runtime.PowerState == poweredOn {
		return nil
	}
	return refuse(&types.InvalidPowerState{RequestedState: poweredOn, ExistingState: vm.Runtime.PowerState},
		"The attempted operation cannot be performed in the current state (%s) of virtual machine %s.", vm.Runtime.PowerState, vm.Name)
}

func (g *vmGate) SuspendVMTask(ctx *simulator.Context, req *types.SuspendVM_Task) soap.HasFault {
	lab, vm := g.lab, g.lab.vm(ctx, req.This)
	return lab.perform(ctx, operation{
		method: "SuspendVM_Task", description: "VirtualMachine.suspend", entity: vm, name: vm.Name,
		check: func(*simulator.Context) *refusal { return mustRun(vm) },
		run: func(ctx *simulator.Context) (types.AnyType, *refusal) {
			body := vm.SuspendVMTask(ctx, req)
			return lab.inner(ctx, body, func() types.ManagedObjectReference {
				return body.(*methods.SuspendVM_TaskBody).Res.Returnval
			})
		},
	}, func(task types.ManagedObjectReference) soap.HasFault {
		return &methods.SuspendVM_TaskBody{Res: &types.SuspendVM_TaskResponse{Returnval: task}}
	})
}

// ResetVMTask keeps the VM and its GPUs where they are; govmomi would power it
// off and on, and lose the booking in between.
func (g *vmGate) ResetVMTask(ctx *simulator.Context, req *types.ResetVM_Task) soap.HasFault {
	lab, vm := g.lab, g.lab.vm(ctx, req.This)
	return lab.perform(ctx, operation{
		method: "ResetVM_Task", description: "VirtualMachine.reset", entity: vm, name: vm.Name,
		check: func(*simulator.Context) *refusal { return mustRun(vm) },
		run: func(ctx *simulator.Context) (types.AnyType, *refusal) {
			ctx.Update(vm, []types.PropertyChange{{Name: "summary.runtime.bootTime", Val: types.NewTime(time.Now())}})
			return nil, nil
		},
	}, func(task types.ManagedObjectReference) soap.HasFault {
		return &methods.ResetVM_TaskBody{Res: &types.ResetVM_TaskResponse{Returnval: task}}
	})
}

// ShutdownGuest needs VMware Tools, and a guest can ignore it.
func (g *vmGate) ShutdownGuest(ctx *simulator.Context, req *types.ShutdownGuest) soap.HasFault {
	lab, vm := g.lab, g.lab.vm(ctx, req.This)
	if injected := lab.faults.match("ShutdownGuest", vm.Self, vm.Name); injected != nil {
		return injected.refusal().soap()
	}
	var answer soap.HasFault
	worker := lab.freshContext(ctx)
	worker.WithLock(vm, func() {
		lab.mu.Lock()
		known := lab.machines[vm.Self]
		lab.mu.Unlock()
		switch refused := mustRun(vm); {
		case refused != nil:
			answer = refused.soap()
		case known == nil || !known.hasTools:
			answer = refuse(&types.ToolsUnavailable{}, "VMware Tools is not running in virtual machine %s.", vm.Name).soap()
		case known.ignoresShutdown || lab.conduct.get().GuestShutdown == "hangs":
			answer = &methods.ShutdownGuestBody{Res: &types.ShutdownGuestResponse{}}
		default:
			lab.bootGuest(worker, vm, false)
			answer = vm.ShutdownGuest(worker, req)
		}
	})
	return answer
}
