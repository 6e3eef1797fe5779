package main

import (
	"fmt"
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"vgpu-fleet.example/lab/vsphere/admission"
)

// groupHardware is the first hardware version with vendor device groups.
const groupHardware = 20

// deviceGroup is one set of connected devices of a host. A host with two such
// sets of one name offers the name once (vsphere.md 1.4).
type deviceGroup struct {
	spec DeviceGroupSpec
}

func (l *Lab) fitGroups(host *gpuHost, specs []DeviceGroupSpec) error {
	for _, spec := range specs {
		if spec.Name == "" || len(spec.Devices) < 2 {
			return fmt.Errorf("a device group has a name and two or more devices: %+v", spec)
		}
		for _, member := range spec.Devices {
			if host.pciDevice(member.Address) == nil {
				return fmt.Errorf("device group %s: the host has no device %s", spec.Name, member.Address)
			}
			if g := host.gpu(member.Address); member.Profile != "" && (g == nil || g.board.Profiles[member.Profile].Name == "") {
				return fmt.Errorf("device group %s: %s is no GPU with profile %s", spec.Name, member.Address, member.Profile)
			}
		}
		host.groups = append(host.groups, &deviceGroup{spec: spec})
	}
	return nil
}

// offers: all members of the group can be given to VMs now, in use or not; l.mu is held.
func (h *gpuHost) offers(group *deviceGroup) bool {
	for _, member := range group.spec.Devices {
		if member.Profile == "" {
			if device := h.pciDevice(member.Address); !device.active {
				return false
			}
			continue
		}
		g := h.gpu(member.Address)
		if _, offered := g.Offers(member.Profile); !offered || !h.driver || g.activeType != typeSharedDirect {
			return false
		}
	}
	return true
}

// groupInfo is how the API offers a group: a template for each of its devices.
func (h *gpuHost) groupInfo(group *deviceGroup) types.VirtualMachineVendorDeviceGroupInfo {
	info := types.VirtualMachineVendorDeviceGroupInfo{
		VirtualMachineTargetInfo: types.VirtualMachineTargetInfo{Name: group.spec.Name},
		DeviceGroupName:          group.spec.Name,
		DeviceGroupDescription:   group.spec.Description,
	}
	for i, member := range group.spec.Devices {
		device := h.pciDevice(member.Address)
		template := &types.VirtualPCIPassthrough{VirtualDevice: types.VirtualDevice{
			// The group and the key are the client's to choose; the place in the group is not.
			DeviceGroupInfo: &types.VirtualDeviceDeviceGroupInfo{GroupInstanceKey: -1, SequenceId: int32(i + 1)},
		}}
		component := types.VirtualMachineVendorDeviceGroupInfoComponentDeviceInfo{
			VendorName: device.spec.VendorName, DeviceName: device.spec.DeviceName, Device: template,
		}
		if member.Profile != "" {
			component.Type = string(types.VirtualMachineVendorDeviceGroupInfoComponentDeviceInfoComponentTypeNvidiaVgpu)
			template.Backing = &types.VirtualPCIPassthroughVmiopBackingInfo{Vgpu: member.Profile}
		} else {
			component.Type = string(types.VirtualMachineVendorDeviceGroupInfoComponentDeviceInfoComponentTypePciPassthru)
			template.Backing = &types.VirtualPCIPassthroughDynamicBackingInfo{
				AllowedDevice: []types.VirtualPCIPassthroughAllowedDevice{{VendorId: int32(device.vendorID), DeviceId: int32(device.deviceID)}},
				CustomLabel:   device.spec.Label,
			}
		}
		info.ComponentDeviceInfo = append(info.ComponentDeviceInfo, component)
	}
	return info
}

// groupsOf are the groups that hosts offer, by name.
func (l *Lab) groupsOf(hosts []*gpuHost) map[string]types.VirtualMachineVendorDeviceGroupInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]types.VirtualMachineVendorDeviceGroupInfo{}
	for _, host := range hosts {
		for _, group := range host.groups {
			if _, known := out[group.spec.Name]; !known && host.offers(group) {
				out[group.spec.Name] = host.groupInfo(group)
			}
		}
	}
	return out
}

func groupKey(device types.BaseVirtualDevice) (int32, bool) {
	if info := device.GetVirtualDevice().DeviceGroupInfo; info != nil {
		return info.GroupInstanceKey, true
	}
	return 0, false
}

// vendorGroups are the groups of a VM by key.
func vendorGroups(groups *types.VirtualMachineVirtualDeviceGroups) map[int32]string {
	out := map[int32]string{}
	if groups == nil {
		return out
	}
	for _, base := range groups.DeviceGroup {
		name := ""
		if vendor, ok := base.(*types.VirtualMachineVirtualDeviceGroupsVendorDeviceGroup); ok {
			name = vendor.DeviceGroupName
		}
		out[base.GetVirtualMachineVirtualDeviceGroupsDeviceGroup().GroupInstanceKey] = name
	}
	return out
}

// checkGroupChange: a group and all its devices come and go in one request, and
// nothing about an existing group can be changed.
func (l *Lab) checkGroupChange(at deviceSituation, spec *types.VirtualMachineConfigSpec) *refusal {
	bad := func(format string, args ...any) *refusal {
		fault := &types.InvalidDeviceSpec{}
		fault.Property = "configSpec.deviceGroups"
		return refuse(fault, format, args...)
	}
	before, listed := vendorGroups(at.groups), vendorGroups(spec.DeviceGroups)
	added, removed := map[int32][]types.BaseVirtualDevice{}, map[int32]bool{}
	for _, change := range spec.DeviceChange {
		device := change.GetVirtualDeviceConfigSpec()
		switch device.Operation {
		case types.VirtualDeviceConfigSpecOperationAdd:
			if key, grouped := groupKey(device.Device); grouped {
				if _, wanted := listed[key]; key >= 0 || !wanted {
					return bad("A device is added to group %d of virtual machine %s, which the request does not add.", key, at.vmName)
				}
				added[key] = append(added[key], device.Device)
			}
		case types.VirtualDeviceConfigSpecOperationRemove:
			for _, present := range at.devices {
				if present.GetVirtualDevice().Key == device.Device.GetVirtualDevice().Key {
					if key, grouped := groupKey(present); grouped {
						removed[key] = true
					}
				}
			}
		}
	}
	for key, name := range listed {
		if key >= 0 {
			if known, present := before[key]; !present || known != name {
				return bad("Virtual machine %s has no device group %d named %s.", at.vmName, key, name)
			}
			if removed[key] && l.conduct.get().DeviceGroups == "listed" {
				return bad("Device group %d of virtual machine %s is to stay without its devices.", key, at.vmName)
			}
			continue
		}
		offer, offered := at.groupsOffered[name]
		if !offered {
			return bad("No host of virtual machine %s offers the device group %q.", at.vmName, name)
		}
		if hardwareNumber(at.hardware) < groupHardware {
			return refuse(&types.DeviceUnsupportedForVmVersion{
				CurrentVersion: at.hardware, ExpectedVersion: fmt.Sprintf("vmx-%d", groupHardware),
			}, "Device groups are not supported by hardware version %s of virtual machine %s.", at.hardware, at.vmName)
		}
		if !sameMembers(offer, added[key]) {
			return bad("Device group %q of virtual machine %s can only be added with all its %d devices, and with no others.", name, at.vmName, len(offer.ComponentDeviceInfo))
		}
	}
	if l.conduct.get().DeviceGroups == "listed" {
		for key := range before {
			if _, stays := listed[key]; spec.DeviceGroups != nil && !stays && !removed[key] {
				return bad("Device group %d of virtual machine %s can only be removed with its devices.", key, at.vmName)
			}
			if spec.DeviceGroups == nil && removed[key] {
				return bad("The devices of group %d of virtual machine %s can only be removed with the group.", key, at.vmName)
			}
		}
	}
	return nil
}

// sameMembers compares devices with the templates of a group, by their place in it.
func sameMembers(offer types.VirtualMachineVendorDeviceGroupInfo, devices []types.BaseVirtualDevice) bool {
	if len(devices) != len(offer.ComponentDeviceInfo) {
		return false
	}
	for _, component := range offer.ComponentDeviceInfo {
		template := component.Device.GetVirtualDevice()
		at := slices.IndexFunc(devices, func(d types.BaseVirtualDevice) bool {
			return d.GetVirtualDevice().DeviceGroupInfo.SequenceId == template.DeviceGroupInfo.SequenceId
		})
		if at < 0 || !sameBacking(template.Backing, devices[at].GetVirtualDevice().Backing) {
			return false
		}
	}
	return true
}

func sameBacking(template, backing types.BaseVirtualDeviceBackingInfo) bool {
	switch wanted := template.(type) {
	case *types.VirtualPCIPassthroughVmiopBackingInfo:
		has, ok := backing.(*types.VirtualPCIPassthroughVmiopBackingInfo)
		return ok && has.Vgpu == wanted.Vgpu
	case *types.VirtualPCIPassthroughDynamicBackingInfo:
		has, ok := backing.(*types.VirtualPCIPassthroughDynamicBackingInfo)
		return ok && slices.Equal(has.AllowedDevice, wanted.AllowedDevice) && has.CustomLabel == wanted.CustomLabel
	}
	return false
}

// numberGroups gives new groups lasting keys and returns the groups that the VM
// has after the change.
func numberGroups(vm *simulator.VirtualMachine, spec *types.VirtualMachineConfigSpec) *types.VirtualMachineVirtualDeviceGroups {
	gone := map[int32]bool{}
	for _, change := range spec.DeviceChange {
		if device := change.GetVirtualDeviceConfigSpec(); device.Operation == types.VirtualDeviceConfigSpecOperationRemove {
			for _, present := range vm.Config.Hardware.Device {
				if key, grouped := groupKey(present); grouped && present.GetVirtualDevice().Key == device.Device.GetVirtualDevice().Key {
					gone[key] = true
				}
			}
		}
	}
	after := &types.VirtualMachineVirtualDeviceGroups{}
	taken := map[int32]bool{}
	if present := vm.Config.DeviceGroups; present != nil {
		for _, base := range present.DeviceGroup {
			key := base.GetVirtualMachineVirtualDeviceGroupsDeviceGroup().GroupInstanceKey
			taken[key] = true
			if !gone[key] {
				after.DeviceGroup = append(after.DeviceGroup, base)
			}
		}
	}
	if spec.DeviceGroups != nil {
		for _, base := range spec.DeviceGroups.DeviceGroup {
			group, ok := base.(*types.VirtualMachineVirtualDeviceGroupsVendorDeviceGroup)
			if !ok || group.GroupInstanceKey >= 0 {
				continue
			}
			key := int32(0)
			for taken[key] {
				key++
			}
			taken[key] = true
			lasting := *group
			lasting.GroupInstanceKey = key
			lasting.DeviceInfo = &types.Description{Label: fmt.Sprintf("Device Group %d", key), Summary: group.DeviceGroupName}
			after.DeviceGroup = append(after.DeviceGroup, &lasting)
			for _, change := range spec.DeviceChange {
				device := change.GetVirtualDeviceConfigSpec()
				if info := device.Device.GetVirtualDevice().DeviceGroupInfo; info != nil && device.Operation == types.VirtualDeviceConfigSpecOperationAdd && info.GroupInstanceKey == group.GroupInstanceKey {
					device.Device.GetVirtualDevice().DeviceGroupInfo = &types.VirtualDeviceDeviceGroupInfo{GroupInstanceKey: key, SequenceId: info.SequenceId}
				}
			}
		}
	}
	if len(after.DeviceGroup) == 0 {
		return nil
	}
	return after
}

// ungrouped are the devices of a VM that a host may choose freely.
func ungrouped(devices []types.BaseVirtualDevice) []types.BaseVirtualDevice {
	return slices.DeleteFunc(slices.Clone(devices), func(d types.BaseVirtualDevice) bool {
		_, grouped := groupKey(d)
		return grouped
	})
}

// admitGroups books a whole set of connected devices for each group of the VM and
// then calls rest for the other devices; where that fails it tries other sets.
// l.mu is held.
func (l *Lab) admitGroups(vm *simulator.VirtualMachine, host *gpuHost, names []string, rest func() *refusal) *refusal {
	if len(names) == 0 {
		return rest()
	}
	offered := false
	var last *refusal
	for _, group := range host.groups {
		if group.spec.Name != names[0] || !host.offers(group) {
			continue
		}
		offered = true
		undo := l.takeGroup(vm, host, group)
		if undo == nil {
			continue
		}
		if last = l.admitGroups(vm, host, names[1:], rest); last == nil {
			return nil
		}
		undo()
	}
	switch {
	case !offered:
		return refuse(&types.DeviceNotSupported{Device: "Vendor device group " + names[0], Reason: "host"},
			"Host %s has no device group %s.", host.name, names[0])
	case last != nil:
		return last
	}
	return refuse(&types.InsufficientGraphicsResourcesFault{},
		"Host %s has no free device group %s for virtual machine %s.", host.name, names[0], vm.Name)
}

// takeGroup books all devices of one set, or none. It returns how to give them back.
func (l *Lab) takeGroup(vm *simulator.VirtualMachine, host *gpuHost, group *deviceGroup) func() {
	var undo []func()
	back := func() {
		for _, step := range slices.Backward(undo) {
			step()
		}
	}
	for _, member := range group.spec.Devices {
		if member.Profile == "" {
			device := host.pciDevice(member.Address)
			if device.holder != "" {
				back()
				return nil
			}
			device.holder = vm.Self.Value
			undo = append(undo, func() { device.holder = "" })
			continue
		}
		g := host.gpu(member.Address)
		if !g.Take(vm.Self.Value, member.Profile, admission.Rules{PinByType: l.version.PinByType}) {
			back()
			return nil
		}
		undo = append(undo, func() { g.Slots = g.Slots[:len(g.Slots)-1] })
	}
	return back
}

// groupCapacity counts the sets of a name that are taken, free and there at all; l.mu is held.
func (l *Lab) groupCapacity(ctx *simulator.Context, host *gpuHost, name string) (consumed, remaining, most int32) {
	stub := &simulator.VirtualMachine{}
	stub.Self = types.ManagedObjectReference{Type: "VirtualMachine", Value: "capacity"}
	var undo []func()
	for _, group := range host.groups {
		if group.spec.Name != name || !host.offers(group) {
			continue
		}
		most++
		if back := l.takeGroup(stub, host, group); back != nil {
			undo = append(undo, back)
			remaining++
		}
	}
	for _, back := range slices.Backward(undo) {
		back()
	}
	for _, ref := range l.hostObject(ctx, host).Vm {
		vm := l.vm(ctx, ref)
		if vm == nil || vm.Runtime.PowerState != poweredOn {
			continue
		}
		for _, has := range vendorGroups(vm.Config.DeviceGroups) {
			if has == name {
				consumed++
			}
		}
	}
	return consumed, remaining, max(most, consumed+remaining)
}
