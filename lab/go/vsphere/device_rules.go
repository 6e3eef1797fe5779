package main

import (
	"fmt"
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"vgpu-fleet.example/lab/vsphere/admission"
)

// firstPciKey is where a real vCenter starts to number passthrough devices.
const firstPciKey = 13000

// pciControllerKey is the key of the PCI controller every VM has.
const pciControllerKey = 100

// vgpuOf returns the profile of a device, or "" if it is no vGPU.
func vgpuOf(device types.BaseVirtualDevice) string {
	if pci, ok := device.(*types.VirtualPCIPassthrough); ok {
		if backing, ok := pci.Backing.(*types.VirtualPCIPassthroughVmiopBackingInfo); ok {
			return backing.Vgpu
		}
	}
	return ""
}

func vgpusOf(devices []types.BaseVirtualDevice) []string {
	var out []string
	for _, device := range devices {
		if name := vgpuOf(device); name != "" {
			out = append(out, name)
		}
	}
	return out
}

func isPassthrough(device types.BaseVirtualDevice) bool {
	_, ok := device.(*types.VirtualPCIPassthrough)
	return ok
}

func hardwareNumber(version string) int {
	number := 0
	_, _ = fmt.Sscanf(version, "vmx-%d", &number)
	return number
}

// deviceSituation is what the rules for a change of devices depend on.
type deviceSituation struct {
	vmName   string
	hardware string
	power    types.VirtualMachinePowerState
	devices  []types.BaseVirtualDevice
	// offered are the profiles of the hosts in reach.
	offered map[string]bool
	// groups are the device groups of the VM, groupsOffered those of the hosts in reach.
	groups        *types.VirtualMachineVirtualDeviceGroups
	groupsOffered map[string]types.VirtualMachineVendorDeviceGroupInfo
	// knownNetwork says whether a standard network exists.
	knownNetwork func(name string) bool
}

// checkDevices applies the rules of vsphere.md 5.7 to a list of changes and returns
// the devices the VM would have.
func (l *Lab) checkDevices(at deviceSituation, changes []types.BaseVirtualDeviceConfigSpec) ([]types.BaseVirtualDevice, *refusal) {
	after := slices.Clone(at.devices)
	removed := map[int32]bool{}
	added := -1
	for i, change := range changes {
		spec := change.GetVirtualDeviceConfigSpec()
		index := types.InvalidDeviceSpec{DeviceIndex: int32(i)}
		index.Property = fmt.Sprintf("deviceChange[%d]", i)
		if spec.Device == nil {
			return nil, refuse(&index, "Device change %d names no device.", i)
		}
		key := spec.Device.GetVirtualDevice().Key
		position := slices.IndexFunc(after, func(d types.BaseVirtualDevice) bool { return d.GetVirtualDevice().Key == key })
		if refused := l.checkBacking(at, spec.Device, index); refused != nil && spec.Operation != types.VirtualDeviceConfigSpecOperationRemove {
			return nil, refused
		}
		switch spec.Operation {
		case types.VirtualDeviceConfigSpecOperationRemove:
			if position < 0 {
				return nil, refuse(&index, "Device %d does not exist on virtual machine %s.", key, at.vmName)
			}
			if isPassthrough(after[position]) {
				if refused := l.hotPlug(at, index); refused != nil {
					return nil, refused
				}
			}
			removed[key] = true
			after = slices.Delete(after, position, position+1)
		case types.VirtualDeviceConfigSpecOperationEdit:
			if position < 0 {
				return nil, refuse(&index, "Device %d does not exist on virtual machine %s.", key, at.vmName)
			}
			before, wasGrouped := groupKey(after[position])
			if now, grouped := groupKey(spec.Device); grouped != wasGrouped || now != before {
				return nil, refuse(&index, "The device group of device %d of virtual machine %s cannot be edited.", key, at.vmName)
			}
			if vgpuOf(after[position]) != vgpuOf(spec.Device) {
				// Whether a real server allows this is unknown (vsphere.md 5.3).
				return nil, refuse(&index, "The vGPU profile of device %d cannot be edited; remove and add it.", key)
			}
			after[position] = spec.Device
		case types.VirtualDeviceConfigSpecOperationAdd:
			if isPassthrough(spec.Device) {
				if refused := l.hotPlug(at, index); refused != nil {
					return nil, refused
				}
				if hardwareNumber(at.hardware) < l.version.MinVgpuHardware {
					expected := fmt.Sprintf("vmx-%02d", l.version.MinVgpuHardware)
					return nil, refuse(&types.DeviceUnsupportedForVmVersion{
						InvalidDeviceSpec: index, CurrentVersion: at.hardware, ExpectedVersion: expected,
					}, "The device is not supported by hardware version %s of virtual machine %s; it needs %s.", at.hardware, at.vmName, expected)
				}
				added = i
			}
			after = append(after, spec.Device)
		}
	}
	if refused := l.checkGroups(at, removed); refused != nil {
		return nil, refused
	}
	if added >= 0 {
		return after, l.checkSet(at, after, added)
	}
	return after, nil
}

func (l *Lab) hotPlug(at deviceSituation, index types.InvalidDeviceSpec) *refusal {
	if at.power == types.VirtualMachinePowerStatePoweredOff {
		return nil
	}
	// Which of both faults a real server raises is unknown (vsphere.md 5.1).
	if l.conduct.get().HotAddFault == "DeviceHotPlugNotSupported" {
		return refuse(&types.DeviceHotPlugNotSupported{InvalidDeviceSpec: index}, "PCI passthrough devices of virtual machine %s cannot be changed while it is %s.", at.vmName, at.power)
	}
	return refuse(&types.InvalidPowerState{
		RequestedState: types.VirtualMachinePowerStatePoweredOff, ExistingState: at.power,
	}, "The attempted operation cannot be performed in the current state (%s) of virtual machine %s.", at.power, at.vmName)
}

func (l *Lab) checkBacking(at deviceSituation, device types.BaseVirtualDevice, index types.InvalidDeviceSpec) *refusal {
	switch backing := device.GetVirtualDevice().Backing.(type) {
	case *types.VirtualPCIPassthroughVmiopBackingInfo:
		if !at.offered[backing.Vgpu] {
			index.Property += ".device.backing.vgpu"
			return refuse(&types.InvalidDeviceBacking{InvalidDeviceSpec: index}, "The vGPU profile %q is not available on any host of virtual machine %s.", backing.Vgpu, at.vmName)
		}
	case *types.VirtualEthernetCardNetworkBackingInfo:
		// govmomi would crash on an unknown network.
		if !at.knownNetwork(backing.DeviceName) {
			index.Property += ".device.backing.deviceName"
			return refuse(&types.InvalidDeviceBacking{InvalidDeviceSpec: index}, "The network %q does not exist.", backing.DeviceName)
		}
	}
	return nil
}

// checkGroups: devices of one group come and go together (vsphere.md 1.4).
func (l *Lab) checkGroups(at deviceSituation, removed map[int32]bool) *refusal {
	state := map[int32]map[bool]int{}
	for _, device := range at.devices {
		base := device.GetVirtualDevice()
		if group := base.DeviceGroupInfo; group != nil {
			if state[group.GroupInstanceKey] == nil {
				state[group.GroupInstanceKey] = map[bool]int{}
			}
			state[group.GroupInstanceKey][removed[base.Key]]++
		}
	}
	for key, count := range state {
		if count[true] > 0 && count[false] > 0 {
			return refuse(&types.InvalidDeviceSpec{}, "Devices of group %d of virtual machine %s can only be removed together.", key, at.vmName)
		}
	}
	return nil
}

// checkSet looks at all vGPUs of the VM together.
func (l *Lab) checkSet(at deviceSituation, after []types.BaseVirtualDevice, index int) *refusal {
	names := vgpusOf(after)
	if limit := l.maxVgpus(); len(names) > limit {
		fault := &types.TooManyDevices{}
		fault.Property = "config.hardware.device"
		return refuse(fault, "Virtual machine %s would have %d vGPUs; %d are allowed.", at.vmName, len(names), limit)
	}
	var first admission.Profile
	for _, name := range names {
		profile, _ := l.profile(name)
		if first.Name == "" {
			first = profile
			continue
		}
		if profile.Board != first.Board || profile.Series != first.Series {
			fault := &types.InvalidDeviceSpec{DeviceIndex: int32(index)}
			return refuse(fault, "vGPUs of one virtual machine must be of one board and series: %s and %s are not.", first.Name, name)
		}
	}
	return nil
}

// number gives new passthrough devices the keys and labels of a real server.
func (l *Lab) number(devices []types.BaseVirtualDevice, changes []types.BaseVirtualDeviceConfigSpec) {
	taken := map[int32]bool{}
	for _, device := range devices {
		taken[device.GetVirtualDevice().Key] = true
	}
	for _, change := range changes {
		spec := change.GetVirtualDeviceConfigSpec()
		if spec.Operation != types.VirtualDeviceConfigSpecOperationAdd || !isPassthrough(spec.Device) {
			continue
		}
		key := int32(firstPciKey)
		for taken[key] {
			key++
		}
		taken[key] = true
		device := spec.Device.GetVirtualDevice()
		device.Key, device.ControllerKey, device.UnitNumber = key, pciControllerKey, nil
		summary := ""
		switch backing := device.Backing.(type) {
		case *types.VirtualPCIPassthroughVmiopBackingInfo:
			summary = "NVIDIA GRID vGPU " + backing.Vgpu
			l.fillServerFields(backing)
		case *types.VirtualPCIPassthroughDynamicBackingInfo:
			summary = "Dynamic DirectPath IO"
		}
		device.DeviceInfo = &types.Description{Label: fmt.Sprintf("PCI device %d", key-firstPciKey), Summary: summary}
	}
}

func (l *Lab) fillServerFields(backing *types.VirtualPCIPassthroughVmiopBackingInfo) {
	profile, _ := l.profile(backing.Vgpu)
	backing.MigrateSupported = types.NewBool(true)
	backing.VgpuMigrateDataSizeMB = int32(profile.FramebufferMiB)
	backing.EnhancedMigrateCapability = types.NewBool(true)
	l.version.forget(backing)
}

// situation collects what the device rules need of an existing VM.
func (l *Lab) situation(ctx *simulator.Context, vm *simulator.VirtualMachine) deviceSituation {
	at := deviceSituation{
		vmName: vm.Name, hardware: vm.Config.Version, power: vm.Runtime.PowerState,
		devices: vm.Config.Hardware.Device, offered: map[string]bool{}, groups: vm.Config.DeviceGroups,
	}
	if host := l.host(vm.Runtime.Host); host != nil {
		l.offerIn(ctx, host.cluster, at.offered)
		at.groupsOffered = l.groupsOf(l.clusterHosts(ctx, host.cluster))
	}
	at.knownNetwork = l.networksAround(ctx, vm)
	return at
}

func (l *Lab) offerIn(ctx *simulator.Context, cluster types.ManagedObjectReference, offered map[string]bool) {
	hosts := l.clusterHosts(ctx, cluster)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, host := range hosts {
		for _, profile := range host.profiles() {
			offered[profile.Name] = true
		}
	}
}
