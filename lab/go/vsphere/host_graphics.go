package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"vgpu-fleet.example/lab/vsphere/admission"
)

var vgpuModes = map[admission.Mode]types.HostGraphicsInfoVgpuMode{
	admission.SameSize:  types.HostGraphicsInfoVgpuModeSameSize,
	admission.MixedSize: types.HostGraphicsInfoVgpuModeMixedSize,
	admission.Mig:       types.HostGraphicsInfoVgpuModeMultiInstanceGpu,
}

// publish writes the state of a host's GPUs into its API objects. Property
// collectors that wait for changes are woken up. The two objects are locked one
// after the other: a call to the manager holds its lock when it gets here.
func (l *Lab) publish(ctx *simulator.Context, host *gpuHost) {
	conduct := l.conduct.get()
	l.mu.Lock()
	hidden := l.list(host, conduct.GraphicsInfo == "live")
	l.mu.Unlock()
	if hidden && conduct.GraphicsInfo == "delayed" {
		time.AfterFunc(time.Duration(conduct.GraphicsDelayMS)*time.Millisecond, func() { l.reveal(l.freshContext(ctx), host) })
	}
	l.show(ctx, host)
}

// list decides which VMs graphicsInfo shows: those it shows already, or all. It
// tells whether it leaves out any; l.mu is held.
func (l *Lab) list(host *gpuHost, all bool) (hidden bool) {
	for _, g := range host.gpus {
		listed := map[string]bool{}
		for _, slot := range g.Slots {
			if all || g.listed[slot.Holder] {
				listed[slot.Holder] = true
			} else {
				hidden = true
			}
		}
		g.listed = listed
	}
	return hidden
}

// reveal lets graphicsInfo show every VM that is on the host's GPUs.
func (l *Lab) reveal(ctx *simulator.Context, host *gpuHost) {
	l.mu.Lock()
	l.list(host, true)
	l.mu.Unlock()
	l.show(ctx, host)
}

func (l *Lab) show(ctx *simulator.Context, host *gpuHost) {
	object := l.hostObject(ctx, host)
	ctx.WithLock(object, func() {
		changes := l.graphicsChanges(host, "config.")
		l.mu.Lock()
		changes = append(changes, types.PropertyChange{Name: "config.pciPassthruInfo", Val: l.passthroughInfo(host)})
		l.mu.Unlock()
		if l.version.has("7.0") {
			l.mu.Lock()
			changes = append(changes, types.PropertyChange{Name: "config.assignableHardwareBinding", Val: l.bindings(ctx, host)})
			l.mu.Unlock()
		}
		ctx.Update(object, changes)
	})
	ctx.WithLock(host.manager, func() {
		ctx.Update(host.manager, l.graphicsChanges(host, ""))
	})
}

func (l *Lab) graphicsChanges(host *gpuHost, prefix string) []types.PropertyChange {
	l.mu.Lock()
	defer l.mu.Unlock()
	view := l.view(host)
	return []types.PropertyChange{
		{Name: prefix + "graphicsInfo", Val: view.GraphicsInfo},
		{Name: prefix + "graphicsConfig", Val: view.GraphicsConfig},
		{Name: prefix + "sharedPassthruGpuTypes", Val: view.SharedPassthruGpuTypes},
		{Name: prefix + "sharedGpuCapabilities", Val: view.SharedGpuCapabilities},
	}
}

func (l *Lab) view(host *gpuHost) mo.HostGraphicsManager {
	config := &types.HostGraphicsConfig{
		HostDefaultGraphicsType:        host.defaultType,
		SharedPassthruAssignmentPolicy: string(host.policy),
	}
	view := mo.HostGraphicsManager{GraphicsConfig: config}
	for _, g := range host.gpus {
		info := types.HostGraphicsInfo{
			DeviceName:   g.board.LongName,
			VendorName:   "NVIDIA Corporation",
			PciId:        g.ID,
			GraphicsType: g.activeType,
			// Real cards report a little less than their nominal size (vsphere.md 3.1).
			MemorySizeInKB: int64(g.FramebufferMiB)*1024 - 256*1024,
		}
		device := types.HostGraphicsConfigDeviceType{DeviceId: g.ID, GraphicsType: g.configuredType}
		if l.version.has("8.0.3.0") {
			info.VgpuMode = string(types.HostGraphicsInfoVgpuModeNone)
			if g.activeType == typeSharedDirect && host.driver {
				info.VgpuMode = string(vgpuModes[g.Mode])
			}
			if g.configuredMode != admission.Mig {
				device.VgpuMode = string(vgpuModes[g.configuredMode])
			}
		}
		for _, slot := range g.Slots {
			vm := types.ManagedObjectReference{Type: "VirtualMachine", Value: slot.Holder}
			if g.listed[slot.Holder] && simulator.FindReference(info.Vm, vm) == nil {
				info.Vm = append(info.Vm, vm)
			}
		}
		info.Vm = append(info.Vm, g.vsga...)
		view.GraphicsInfo = append(view.GraphicsInfo, info)
		config.DeviceType = append(config.DeviceType, device)
	}
	for _, profile := range host.profiles() {
		view.SharedPassthruGpuTypes = append(view.SharedPassthruGpuTypes, profile.Name)
		view.SharedGpuCapabilities = append(view.SharedGpuCapabilities, types.HostSharedGpuCapabilities{
			Vgpu: profile.Name, DiskSnapshotSupported: true, SuspendSupported: true, MigrateSupported: true,
		})
	}
	return view
}

// bindings are the devices given away whole. vGPUs are not listed: which device
// of which VM sits on which GPU is only in the API since 9.1 (vsphere.md 1.7).
func (l *Lab) bindings(ctx *simulator.Context, host *gpuHost) []types.HostAssignableHardwareBinding {
	var out []types.HostAssignableHardwareBinding
	if l.version.has("9.1.0.0") {
		out = l.vgpuBindings(ctx, host)
	}
	for _, device := range host.passthrough {
		if device.holder != "" {
			out = append(out, types.HostAssignableHardwareBinding{
				InstanceId: "PCI:" + device.spec.Address,
				Vm:         types.ManagedObjectReference{Type: "VirtualMachine", Value: device.holder},
			})
		}
	}
	return out
}

// deviceVendorID joins profiles to boards: vendor in the low 16 bits (vsphere.md 1.8).
func deviceVendorID(deviceID uint16) int64 {
	return int64(deviceID)<<16 | nvidiaVendor
}

// plugIn adds GPUs and passthrough devices to the hardware list of a new host.
func (l *Lab) plugIn(object *simulator.HostSystem, host *gpuHost) error {
	hardware := *object.Hardware
	hardware.PciDevice = append([]types.HostPciDevice(nil), hardware.PciDevice...)
	for _, g := range host.gpus {
		device, err := pciEntry(g.ID, nvidiaVendor, g.deviceID, "NVIDIA Corporation", g.board.LongName)
		if err != nil {
			return err
		}
		device.ClassId = 0x0302
		if l.version.has("8.0.3.0") {
			device.DeviceClassName = "3D controller"
		}
		if l.version.has("9.1.0.0") {
			device.DeviceClassName += l.directPathInfo(host, g)
		}
		hardware.PciDevice = append(hardware.PciDevice, device)
	}
	for _, p := range host.devices {
		if host.gpu(p.spec.Address) == nil {
			device, err := pciEntry(p.spec.Address, p.vendorID, p.deviceID, p.spec.VendorName, p.spec.DeviceName)
			if err != nil {
				return err
			}
			hardware.PciDevice = append(hardware.PciDevice, device)
		}
	}
	object.Hardware = &hardware
	return nil
}

// pciEntry: PCI ids are signed shorts in the API, so 0x9999 shows as -26215.
func pciEntry(address string, vendor, device uint16, vendorName, deviceName string) (types.HostPciDevice, error) {
	entry := types.HostPciDevice{
		Id: address, VendorId: int16(vendor), DeviceId: int16(device), SubVendorId: int16(vendor),
		VendorName: vendorName, DeviceName: deviceName,
	}
	parts := strings.FieldsFunc(address, func(r rune) bool { return r == ':' || r == '.' })
	if len(parts) != 4 {
		return entry, fmt.Errorf("PCI address %q is not of the form 0000:3b:00.0", address)
	}
	for i, target := range []*byte{&entry.Bus, &entry.Slot, &entry.Function} {
		value, err := strconv.ParseUint(parts[i+1], 16, 8)
		if err != nil {
			return entry, fmt.Errorf("PCI address %q: %w", address, err)
		}
		*target = byte(value)
	}
	return entry, nil
}
