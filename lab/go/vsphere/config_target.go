package main

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// QueryConfigTarget adds what the asked host, or all hosts of the cluster, offer.
func (g *browserGate) QueryConfigTarget(ctx *simulator.Context, req *types.QueryConfigTarget) soap.HasFault {
	lab, browser := g.lab, g.browser(ctx, req.This)
	if req.Host != nil && lab.host(req.Host) == nil {
		return refuse(&types.InvalidArgument{InvalidProperty: "host"}, "A specified parameter was not correct: host.").soap()
	}
	var body *methods.QueryConfigTargetBody
	ctx.WithLock(browser, func() {
		body = browser.QueryConfigTarget(ctx, req).(*methods.QueryConfigTargetBody)
	})
	target := body.Res.Returnval
	groups := lab.groupsOf(lab.browserHosts(ctx, req.This, req.Host))
	lab.mu.Lock()
	defer lab.mu.Unlock()
	seen := map[string]bool{}
	unseen := func(kind, name string) bool {
		known := seen[kind+name]
		seen[kind+name] = true
		return !known
	}
	for _, host := range lab.browserHosts(ctx, req.This, req.Host) {
		for _, profile := range host.profiles() {
			if unseen("shared", profile.Name) {
				target.SharedGpuPassthroughTypes = append(target.SharedGpuPassthroughTypes,
					types.VirtualMachinePciSharedGpuPassthroughInfo{
						VirtualMachineTargetInfo: types.VirtualMachineTargetInfo{Name: profile.Name},
						Vgpu:                     profile.Name,
					})
			}
		}
		for _, info := range vgpuProfiles(host) {
			if unseen("profile", info.ProfileName) {
				target.VgpuProfileInfo = append(target.VgpuProfileInfo, info)
			}
		}
		for _, info := range vgpuDevices(host) {
			if unseen("device", info.DeviceName) {
				target.VgpuDeviceInfo = append(target.VgpuDeviceInfo, info)
			}
		}
		for _, device := range host.passthrough {
			// govmomi does not say since when fields of 7.0 exist.
			if lab.version.has("7.0") && unseen("pci", device.spec.VendorID+device.spec.DeviceID+device.spec.Label) {
				target.DynamicPassthrough = append(target.DynamicPassthrough, types.VirtualMachineDynamicPassthroughInfo{
					VirtualMachineTargetInfo: types.VirtualMachineTargetInfo{Name: device.spec.DeviceName},
					VendorName:               device.spec.VendorName,
					DeviceName:               device.spec.DeviceName,
					CustomLabel:              device.spec.Label,
					VendorId:                 int32(device.vendorID),
					DeviceId:                 int32(device.deviceID),
				})
			}
		}
	}
	if lab.version.has("8.0.0.1") {
		for _, name := range slices.Sorted(maps.Keys(groups)) {
			target.VendorDeviceGroupInfo = append(target.VendorDeviceGroupInfo, groups[name])
		}
	}
	lab.version.forget(target)
	return body
}

func vgpuProfiles(host *gpuHost) []types.VirtualMachineVgpuProfileInfo {
	var out []types.VirtualMachineVgpuProfileInfo
	seen := map[string]bool{}
	offered := map[string]bool{}
	for _, profile := range host.profiles() {
		offered[profile.Name] = true
	}
	for _, g := range host.gpus {
		for _, p := range g.board.ProfileList {
			if !offered[p.Name] || seen[p.Name] {
				continue
			}
			seen[p.Name] = true
			info := types.VirtualMachineVgpuProfileInfo{
				VirtualMachineTargetInfo: types.VirtualMachineTargetInfo{Name: p.Name},
				ProfileName:              p.Name,
				DeviceVendorId:           deviceVendorID(g.deviceID),
				FbSizeInGib:              int64(p.FbMiB / 1024),
				ProfileSharing:           string(types.VirtualMachineVgpuProfileInfoProfileSharingTimeSliced),
				ProfileClass:             string(types.VirtualMachineVgpuProfileInfoProfileClassQuadro),
			}
			if p.MigSlices > 0 {
				info.ProfileSharing = string(types.VirtualMachineVgpuProfileInfoProfileSharingMig)
			}
			info.StunTimeEstimates = stunTimes(g.board.Profiles[p.Name])
			if p.Series == "C" {
				info.ProfileClass = string(types.VirtualMachineVgpuProfileInfoProfileClassCompute)
			}
			out = append(out, info)
		}
	}
	return out
}

func vgpuDevices(host *gpuHost) []types.VirtualMachineVgpuDeviceInfo {
	var out []types.VirtualMachineVgpuDeviceInfo
	seen := map[string]bool{}
	for _, g := range host.gpus {
		if !host.driver || g.activeType != typeSharedDirect || seen[g.board.Name] {
			continue
		}
		seen[g.board.Name] = true
		info := types.VirtualMachineVgpuDeviceInfo{
			VirtualMachineTargetInfo: types.VirtualMachineTargetInfo{Name: g.board.LongName},
			DeviceName:               g.board.LongName,
			DeviceVendorId:           deviceVendorID(g.deviceID),
			MaxFbSizeInGib:           int64(g.board.FramebufferGiB),
			MigCapable:               g.board.MigCapable,
		}
		for _, p := range g.board.ProfileList {
			info.TimeSlicedCapable = info.TimeSlicedCapable || p.MigSlices == 0
			info.ComputeProfileCapable = info.ComputeProfileCapable || p.Series == "C"
			info.QuadroProfileCapable = info.QuadroProfileCapable || p.Series == "Q"
		}
		out = append(out, info)
	}
	return out
}

func (g *browserGate) QueryConfigOption(ctx *simulator.Context, req *types.QueryConfigOption) soap.HasFault {
	body := g.browser(ctx, req.This).QueryConfigOption(req).(*methods.QueryConfigOptionBody)
	complete(body.Res.Returnval)
	g.lab.addVgpuOption(ctx, body.Res.Returnval, req.This, req.Host)
	return body
}

func (g *browserGate) QueryConfigOptionEx(ctx *simulator.Context, req *types.QueryConfigOptionEx) soap.HasFault {
	body := g.browser(ctx, req.This).QueryConfigOptionEx(req).(*methods.QueryConfigOptionExBody)
	complete(body.Res.Returnval)
	var host *types.ManagedObjectReference
	if req.Spec != nil {
		host = req.Spec.Host
	}
	g.lab.addVgpuOption(ctx, body.Res.Returnval, req.This, host)
	return body
}

// addVgpuOption says how many vGPUs a VM may have (vsphere.md 1.2).
func (l *Lab) addVgpuOption(ctx *simulator.Context, option *types.VirtualMachineConfigOption, browser types.ManagedObjectReference, host *types.ManagedObjectReference) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var names []string
	seen := map[string]bool{}
	for _, h := range l.browserHosts(ctx, browser, host) {
		for _, profile := range h.profiles() {
			if !seen[profile.Name] {
				seen[profile.Name] = true
				names = append(names, profile.Name)
			}
		}
	}
	if len(names) == 0 {
		return
	}
	option.HardwareOptions.VirtualDeviceOption = append(option.HardwareOptions.VirtualDeviceOption,
		&types.VirtualPCIPassthroughOption{VirtualDeviceOption: types.VirtualDeviceOption{
			Type: "VirtualPCIPassthrough",
			BackingOption: []types.BaseVirtualDeviceBackingOption{
				&types.VirtualPCIPassthroughVmiopBackingOption{
					VirtualPCIPassthroughPluginBackingOption: types.VirtualPCIPassthroughPluginBackingOption{
						VirtualDeviceBackingOption: types.VirtualDeviceBackingOption{Type: "VirtualPCIPassthroughVmiopBackingInfo"},
					},
					Vgpu:         types.StringOption{DefaultValue: names[0]},
					MaxInstances: int32(l.maxVgpus()),
				},
			},
		}})
	l.version.forget(option)
}

func (l *Lab) maxVgpus() int {
	if l.inventory.MaxVgpusPerVM > 0 {
		return l.inventory.MaxVgpusPerVM
	}
	return l.version.MaxVgpusPerVM
}

func (g *browserGate) browser(ctx *simulator.Context, ref types.ManagedObjectReference) *simulator.EnvironmentBrowser {
	return ctx.Map.Get(ref).(*simulator.EnvironmentBrowser)
}

// browserHosts are the hosts a question to an environment browser is about.
func (l *Lab) browserHosts(ctx *simulator.Context, browser types.ManagedObjectReference, host *types.ManagedObjectReference) []*gpuHost {
	if host != nil {
		if h := l.host(host); h != nil {
			return []*gpuHost{h}
		}
		return nil
	}
	for _, entity := range ctx.Map.All("ClusterComputeResource") {
		cluster := entity.(*simulator.ClusterComputeResource)
		if cluster.EnvironmentBrowser != nil && *cluster.EnvironmentBrowser == browser {
			return l.clusterHosts(ctx, cluster.Self)
		}
	}
	return nil
}

// complete fills required fields that govmomi leaves empty and clients insist on.
func complete(option *types.VirtualMachineConfigOption) {
	for i := range option.GuestOSDescriptor {
		guest := &option.GuestOSDescriptor[i]
		guest.RecommendedDiskController = "ParaVirtualSCSIController"
		guest.RecommendedSCSIController = "ParaVirtualSCSIController"
		guest.RecommendedCdromController = "VirtualAHCIController"
		guest.RecommendedEthernetCard = "VirtualVmxnet3"
	}
	fillStates(reflect.ValueOf(option))
}

// fillStates gives required enumerations that govmomi leaves empty their first
// value: clients cannot read an empty one.
func fillStates(value reflect.Value) {
	switch value.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !value.IsNil() {
			fillStates(value.Elem())
		}
	case reflect.Slice:
		for i := range value.Len() {
			fillStates(value.Index(i))
		}
	case reflect.Struct:
		for i := range value.NumField() {
			field, kind := value.Field(i), value.Type().Field(i)
			if !kind.IsExported() {
				continue
			}
			required := !strings.Contains(kind.Tag.Get("xml"), "omitempty")
			if field.Kind() == reflect.String && required && field.IsZero() && field.CanSet() {
				if values := field.MethodByName("Values"); values.IsValid() {
					field.Set(values.Call(nil)[0].Index(0))
				}
				continue
			}
			fillStates(field)
		}
	}
}
