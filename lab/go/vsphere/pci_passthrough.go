package main

import (
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// passthruSystem is the HostPciPassthruSystem, which govmomi refers to but lacks.
type passthruSystem struct {
	mo.HostPciPassthruSystem
	lab  *Lab
	host *gpuHost
}

// UpdatePassthruConfig switches DirectPath I/O of devices. The whole list is
// checked before anything is stored. Whether a device changes hands at once or
// with the next reboot depends on the host (vsphere.md 2.6).
func (s *passthruSystem) UpdatePassthruConfig(ctx *simulator.Context, req *types.UpdatePassthruConfig) soap.HasFault {
	if refused := s.store(req.Config); refused != nil {
		return refused.soap()
	}
	s.lab.publish(ctx, s.host)
	return &methods.UpdatePassthruConfigBody{Res: &types.UpdatePassthruConfigResponse{}}
}

func (s *passthruSystem) store(configs []types.BaseHostPciPassthruConfig) *refusal {
	s.lab.mu.Lock()
	defer s.lab.mu.Unlock()
	for _, base := range configs {
		config := base.GetHostPciPassthruConfig()
		device := s.host.pciDevice(config.Id)
		if device == nil {
			return refuse(&types.InvalidArgument{InvalidProperty: "config.id"}, "A specified parameter was not correct: config.id is %q.", config.Id)
		}
		if config.PassthruEnabled && !device.capable() {
			return refuse(&types.HostConfigFault{}, "Device %s of host %s cannot be passed through.", config.Id, s.host.name)
		}
		if config.PassthruEnabled != device.enabled && s.host.inUse(device) {
			return refuse(&types.ResourceInUse{Type: "HostPciDevice", Name: config.Id}, "The resource %s is in use.", config.Id)
		}
		if config.ApplyNow != nil && *config.ApplyNow && !s.host.rebinds {
			return refuse(&types.NotSupported{}, "Host %s applies passthrough settings with a reboot.", s.host.name)
		}
	}
	for _, base := range configs {
		config := base.GetHostPciPassthruConfig()
		device := s.host.pciDevice(config.Id)
		device.enabled = config.PassthruEnabled
		device.spec.Label = config.HardwareLabel
		if s.host.rebinds && (config.ApplyNow == nil || *config.ApplyNow) {
			s.host.bind(device)
		}
	}
	return nil
}

func (d *pciDevice) capable() bool { return d.spec.Capable == nil || *d.spec.Capable }

func (h *gpuHost) pciDevice(address string) *pciDevice {
	i := slices.IndexFunc(h.devices, func(d *pciDevice) bool { return d.spec.Address == address })
	if i < 0 {
		return nil
	}
	return h.devices[i]
}

// inUse: a running VM has the device, or a vGPU of it.
func (h *gpuHost) inUse(device *pciDevice) bool {
	if device.holder != "" {
		return true
	}
	g := h.gpu(device.spec.Address)
	return g != nil && len(g.Slots) > 0
}

func (h *gpuHost) gpu(address string) *gpu {
	for _, g := range h.gpus {
		if g.ID == address {
			return g
		}
	}
	return nil
}

// bind gives a device to the driver that its setting asks for; l.mu is held.
func (h *gpuHost) bind(device *pciDevice) {
	if device.active == device.enabled {
		return
	}
	device.active = device.enabled
	g := h.gpu(device.spec.Address)
	if device.active {
		h.passthrough = append(h.passthrough, device)
		if g != nil {
			g.activeType, g.configuredType = typeDirect, typeDirect
		}
		return
	}
	h.passthrough = slices.DeleteFunc(h.passthrough, func(d *pciDevice) bool { return d == device })
	if g != nil {
		g.activeType, g.configuredType = h.defaultType, h.defaultType
	}
}

// rebind is what a reboot of the host does.
func (l *Lab) rebind(host *gpuHost) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, device := range host.devices {
		host.bind(device)
	}
}

// passthroughInfo is what the API shows of the devices that could be passed through; l.mu is held.
func (l *Lab) passthroughInfo(host *gpuHost) []types.BaseHostPciPassthruInfo {
	var out []types.BaseHostPciPassthruInfo
	for _, device := range host.devices {
		dependent := device.spec.Dependent
		if dependent == "" {
			dependent = device.spec.Address
		}
		info := &types.HostPciPassthruInfo{
			Id: device.spec.Address, DependentDevice: dependent, PassthruCapable: device.capable(),
			PassthruEnabled: device.enabled, PassthruActive: device.active, HardwareLabel: device.spec.Label,
		}
		l.version.forget(info)
		if l.version.has("9.1.0.0") {
			info.HardwareLabel += l.directPathState(host, device)
		}
		out = append(out, info)
	}
	return out
}
