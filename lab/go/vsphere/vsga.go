package main

import (
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// vSphere's own virtual graphics (vSGA): a VM with hardware 3D rendering uses a
// shared GPU of its host through the Xorg service, which is why VMware's procedure
// for a change of host graphics begins with powering such VMs off (vsphere.md 2.5).

// renderOnHardware switches 3D on for the VM's video card.
func renderOnHardware(vm *simulator.VirtualMachine) {
	for _, device := range vm.Config.Hardware.Device {
		if card, ok := device.(*types.VirtualMachineVideoCard); ok {
			card.Enable3DSupport = types.NewBool(true)
			card.Use3dRenderer = string(types.VirtualMachineVideoCardUse3dRendererHardware)
		}
	}
}

func rendersOnHardware(vm *simulator.VirtualMachine) bool {
	for _, device := range vm.Config.Hardware.Device {
		if card, ok := device.(*types.VirtualMachineVideoCard); ok && card.Enable3DSupport != nil && *card.Enable3DSupport {
			return card.Use3dRenderer != string(types.VirtualMachineVideoCardUse3dRendererSoftware)
		}
	}
	return false
}

// shareGraphics puts a starting vSGA VM on the first shared GPU of its host; l.mu is held.
func (l *Lab) shareGraphics(vm *simulator.VirtualMachine, host *gpuHost) {
	if !rendersOnHardware(vm) {
		return
	}
	for _, g := range host.gpus {
		if g.activeType == typeShared {
			g.vsga = append(g.vsga, vm.Self)
			return
		}
	}
}

func (g *gpu) releaseGraphics(vm types.ManagedObjectReference) bool {
	before := len(g.vsga)
	kept := g.vsga[:0]
	for _, ref := range g.vsga {
		if ref != vm {
			kept = append(kept, ref)
		}
	}
	g.vsga = kept
	return len(kept) != before
}

func (g *gpu) inUse() bool { return len(g.Slots)+len(g.vsga) > 0 }

// restartXorg follows the switch of the lab. Since 7.0 U1 Xorg may not start on
// hosts whose GPUs serve vGPUs, which do not need it (Broadcom article 318047).
// Whether a change is then in force at once or after a reboot is not documented.
func (s *serviceSystem) restartXorg(ctx *simulator.Context) *refusal {
	conduct := s.lab.conduct.get().Xorg
	if conduct == "starts" {
		s.lab.activate(ctx, s.host, true)
		return nil
	}
	if conduct == "starts_and_waits_for_reboot" {
		return nil
	}
	s.find("xorg").Running = false
	ctx.Update(s, []types.PropertyChange{{Name: "serviceInfo", Val: s.ServiceInfo}})
	if conduct == "fails" {
		s.lab.activate(ctx, s.host, false)
	}
	return refuse(&types.PlatformConfigFault{Text: "xorg: no screens found"},
		"An error occurred during host configuration: the service xorg of host %s could not be started.", s.host.name)
}
