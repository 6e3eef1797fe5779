package main

import (
	"fmt"
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"vgpu-fleet.example/lab/vsphere/admission"
)

// directPathProfileManager tells how many vGPUs hosts and clusters have left, since
// 9.0 (vsphere.md 1.9). govmomi has its types and not the object. Stored profiles
// are not simulated: capacity can be asked for by device configuration.
type directPathProfileManager struct {
	Self types.ManagedObjectReference
	lab  *Lab
}

func (m *directPathProfileManager) Reference() types.ManagedObjectReference { return m.Self }

func (l *Lab) addDirectPathProfiles(content *types.ServiceContent) {
	if !l.version.has("9.0.0.0") {
		return
	}
	manager := &directPathProfileManager{lab: l, Self: types.ManagedObjectReference{Type: "DirectPathProfileManager", Value: "directPathProfileManager"}}
	content.DirectPathProfileManager = &manager.Self
	l.ctx.Map.Put(manager)
}

func (m *directPathProfileManager) DirectPathProfileManagerQueryCapacity(ctx *simulator.Context, req *types.DirectPathProfileManagerQueryCapacity) soap.HasFault {
	hosts, refused := m.hosts(ctx, req.Target)
	if refused != nil {
		return refused.soap()
	}
	answer := &types.DirectPathProfileManagerQueryCapacityResponse{}
	for _, spec := range req.QuerySpec {
		answer.Returnval = append(answer.Returnval, m.answer(ctx, hosts, spec))
	}
	return &methods.DirectPathProfileManagerQueryCapacityBody{Res: answer}
}

func (m *directPathProfileManager) hosts(ctx *simulator.Context, target types.BaseDirectPathProfileManagerTargetEntity) ([]*gpuHost, *refusal) {
	switch entity := target.(type) {
	case *types.DirectPathProfileManagerTargetHost:
		if host := m.lab.host(&entity.Host); host != nil {
			return []*gpuHost{host}, nil
		}
	case *types.DirectPathProfileManagerTargetCluster:
		if hosts := m.lab.clusterHosts(ctx, entity.Cluster); len(hosts) > 0 {
			return hosts, nil
		}
	}
	return nil, refuse(&types.InvalidArgument{InvalidProperty: "target"}, "A specified parameter was not correct: target")
}

func (m *directPathProfileManager) usable(ctx *simulator.Context, host *gpuHost) bool {
	runtime := m.lab.hostObject(ctx, host).Runtime
	return runtime.ConnectionState == types.HostSystemConnectionStateConnected && !runtime.InMaintenanceMode
}

func (m *directPathProfileManager) answer(ctx *simulator.Context, hosts []*gpuHost, spec types.BaseDirectPathProfileManagerCapacityQuerySpec) types.BaseDirectPathProfileManagerCapacityResult {
	unknown := func(fault *refusal) types.BaseDirectPathProfileManagerCapacityResult {
		return &types.DirectPathProfileManagerCapacityUnknown{QuerySpec: spec, FaultList: []types.LocalizedMethodFault{fault.localized()}}
	}
	query, ok := spec.(*types.DirectPathProfileManagerCapacityQueryByDeviceConfig)
	if !ok {
		return unknown(refuse(&types.NotFound{}, "There are no stored DirectPath profiles."))
	}
	if group, ok := query.DeviceConfig.(*types.DirectPathProfileManagerVirtualDeviceGroupDirectPathConfig); ok {
		info := &types.DirectPathProfileManagerCapacityInfo{Profile: types.DirectPathProfileInfo{
			Name: group.DeviceGroupName, VendorName: "NVIDIA", DeviceConfig: query.DeviceConfig,
		}}
		m.lab.mu.Lock()
		defer m.lab.mu.Unlock()
		for _, host := range hosts {
			consumed, remaining, most := m.lab.groupCapacity(ctx, host, group.DeviceGroupName)
			info.Consumed, info.Max = info.Consumed+consumed, info.Max+most
			if m.usable(ctx, host) {
				info.Remaining += remaining
			}
		}
		if info.Max == 0 {
			return unknown(refuse(&types.NotFound{}, "No host of the target has the device group %s.", group.DeviceGroupName))
		}
		return info
	}
	config, ok := query.DeviceConfig.(*types.DirectPathProfileManagerVmiopDirectPathConfig)
	if !ok {
		return unknown(refuse(&types.NotSupported{}, "The lab knows the capacity of vGPU profiles and device groups only."))
	}
	info := &types.DirectPathProfileManagerCapacityInfo{Profile: types.DirectPathProfileInfo{
		Name: config.VgpuProfile, VendorName: "NVIDIA", DeviceConfig: query.DeviceConfig,
	}}
	m.lab.mu.Lock()
	defer m.lab.mu.Unlock()
	offered := false
	for _, host := range hosts {
		usable := m.usable(ctx, host)
		for _, g := range host.shareable() {
			profile, has := g.Offers(config.VgpuProfile)
			if !has {
				continue
			}
			offered = true
			for _, slot := range g.Slots {
				if slot.Profile.Name == config.VgpuProfile {
					info.Consumed++
				}
			}
			rules := admission.Rules{PinByType: m.lab.version.PinByType}
			info.Max += int32(g.Capacity(profile, rules, nil))
			if usable {
				info.Remaining += int32(g.Capacity(profile, rules, g.Slots))
			}
		}
	}
	if !offered {
		return unknown(refuse(&types.NotFound{}, "No device of the target offers the vGPU profile %s.", config.VgpuProfile))
	}
	if skew := m.lab.conduct.get().CapacitySkew; skew != 0 {
		info.Remaining = max(0, info.Remaining+int32(skew))
		info.Max = max(info.Max, info.Remaining+info.Consumed)
	}
	return info
}

// directPathState is how a device is used, since 9.1. govmomi lacks the field, so it
// travels in the label and is set apart on the way out (see newFields).
func (l *Lab) directPathState(host *gpuHost, device *pciDevice) string {
	mode, modes, used := "none", "none,directPath", 0
	if g := host.gpu(device.spec.Address); g != nil {
		modes = "host,directPath,vGpuSameSize,vGpuMixedSize"
		switch {
		case g.activeType != typeSharedDirect:
			mode = "host"
		case g.Mode == admission.MixedSize:
			mode = "vGpuMixedSize"
		default:
			mode = "vGpuSameSize"
		}
		for _, slot := range g.Slots {
			used += slot.Profile.FramebufferMiB
		}
	}
	if device.active {
		mode = "directPath"
	}
	return fmt.Sprintf("|%s|%s|%d|", mode, modes, used)
}

// directPathInfo is what the driver says of a GPU, since 9.1, in the same way.
func (l *Lab) directPathInfo(host *gpuHost, g *gpu) string {
	driver := "nvidia"
	if !host.driver {
		driver = ""
	}
	interconnect := ""
	for _, group := range host.groups {
		for i, member := range group.spec.Devices {
			other := group.spec.Devices[len(group.spec.Devices)-1-i]
			if member.Address == g.ID && member.Profile != "" && other.Profile != "" {
				interconnect = "NVLink"
			}
		}
	}
	return fmt.Sprintf("|%s|%s|580.82.02|%d|", interconnect, driver, g.FramebufferMiB)
}

// vgpuBindings name the GPU of each vGPU, since 9.1. govmomi lacks both fields, so
// they travel in the instance id and are set apart on the way out (see newFields).
func (l *Lab) vgpuBindings(ctx *simulator.Context, host *gpuHost) []types.HostAssignableHardwareBinding {
	var out []types.HostAssignableHardwareBinding
	used := map[string][]int32{}
	for _, g := range host.gpus {
		for _, slot := range g.Slots {
			vm := l.vm(ctx, types.ManagedObjectReference{Type: "VirtualMachine", Value: slot.Holder})
			if vm == nil {
				continue
			}
			for _, device := range vm.Config.Hardware.Device {
				key := device.GetVirtualDevice().Key
				if vgpuOf(device) == slot.Profile.Name && !slices.Contains(used[slot.Holder], key) {
					used[slot.Holder] = append(used[slot.Holder], key)
					out = append(out, types.HostAssignableHardwareBinding{
						InstanceId: fmt.Sprintf("vgpu-%s-%d|%s|%d|", slot.Holder, key, g.ID, key), Vm: vm.Self,
					})
					break
				}
			}
		}
	}
	return out
}
