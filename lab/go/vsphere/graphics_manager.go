package main

import (
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"vgpu-fleet.example/lab/vsphere/admission"
)

// graphicsManager is the HostGraphicsManager, which govmomi refers to but lacks.
type graphicsManager struct {
	mo.HostGraphicsManager
	lab  *Lab
	host *gpuHost
}

func (m *graphicsManager) RefreshGraphicsManager(ctx *simulator.Context, _ *types.RefreshGraphicsManager) soap.HasFault {
	if m.lab.conduct.get().GraphicsInfo == "never" {
		m.lab.publish(ctx, m.host)
	} else {
		m.lab.reveal(ctx, m.host)
	}
	return &methods.RefreshGraphicsManagerBody{Res: &types.RefreshGraphicsManagerResponse{}}
}

func (m *graphicsManager) IsSharedGraphicsActive(*types.IsSharedGraphicsActive) soap.HasFault {
	return &methods.IsSharedGraphicsActiveBody{Res: &types.IsSharedGraphicsActiveResponse{Returnval: m.host.services.running("xorg")}}
}

func (m *graphicsManager) RetrieveVgpuDeviceInfo(*types.RetrieveVgpuDeviceInfo) soap.HasFault {
	m.lab.mu.Lock()
	defer m.lab.mu.Unlock()
	return &methods.RetrieveVgpuDeviceInfoBody{Res: &types.RetrieveVgpuDeviceInfoResponse{Returnval: vgpuDevices(m.host)}}
}

func (m *graphicsManager) RetrieveVgpuProfileInfo(*types.RetrieveVgpuProfileInfo) soap.HasFault {
	m.lab.mu.Lock()
	defer m.lab.mu.Unlock()
	return &methods.RetrieveVgpuProfileInfoBody{Res: &types.RetrieveVgpuProfileInfoResponse{Returnval: vgpuProfiles(m.host)}}
}

// UpdateGraphicsConfig stores the wanted configuration. Types and modes of
// devices come into force with a restart of Xorg or of the host (vsphere.md 2.2);
// the assignment policy does at once.
func (m *graphicsManager) UpdateGraphicsConfig(ctx *simulator.Context, req *types.UpdateGraphicsConfig) soap.HasFault {
	if refused := m.store(req.Config); refused != nil {
		return refused.soap()
	}
	m.lab.publish(ctx, m.host)
	return &methods.UpdateGraphicsConfigBody{Res: &types.UpdateGraphicsConfigResponse{}}
}

func (m *graphicsManager) store(config types.HostGraphicsConfig) *refusal {
	policy := admission.Policy(config.SharedPassthruAssignmentPolicy)
	if policy != admission.Performance && policy != admission.Consolidation {
		return badGraphics("config.sharedPassthruAssignmentPolicy", string(policy))
	}
	if !sharing(config.HostDefaultGraphicsType) {
		return badGraphics("config.hostDefaultGraphicsType", config.HostDefaultGraphicsType)
	}
	m.lab.mu.Lock()
	defer m.lab.mu.Unlock()
	byID := map[string]*gpu{}
	for _, g := range m.host.gpus {
		byID[g.ID] = g
	}
	for _, device := range config.DeviceType {
		if byID[device.DeviceId] == nil {
			return badGraphics("config.deviceType.deviceId", device.DeviceId)
		}
		if !sharing(device.GraphicsType) {
			return badGraphics("config.deviceType.graphicsType", device.GraphicsType)
		}
		if mode := device.VgpuMode; mode != "" && wantedMode(mode) == "" {
			return badGraphics("config.deviceType.vgpuMode", mode)
		}
	}
	m.host.policy = policy
	m.host.defaultType = config.HostDefaultGraphicsType
	named := map[string]bool{}
	for _, device := range config.DeviceType {
		g := byID[device.DeviceId]
		named[device.DeviceId] = true
		if g.configuredType != typeDirect {
			g.configuredType = device.GraphicsType
		}
		if mode := wantedMode(device.VgpuMode); mode != "" && g.configuredMode != admission.Mig {
			g.configuredMode = mode
		}
	}
	for _, g := range m.host.gpus {
		if !named[g.ID] && g.configuredType != typeDirect {
			g.configuredType = m.host.defaultType
		}
	}
	return nil
}

func sharing(kind string) bool { return kind == typeShared || kind == typeSharedDirect }

func wantedMode(mode string) admission.Mode {
	switch types.HostGraphicsConfigVgpuMode(mode) {
	case types.HostGraphicsConfigVgpuModeSameSize:
		return admission.SameSize
	case types.HostGraphicsConfigVgpuModeMixedSize:
		return admission.MixedSize
	}
	return ""
}

func badGraphics(property, value string) *refusal {
	return refuse(&types.InvalidArgument{InvalidProperty: property}, "A specified parameter was not correct: %s is %q.", property, value)
}

// activate puts the configured types and modes in force. A restart of Xorg
// leaves GPUs alone that a VM uses; a restart of the host has none left. Without
// Xorg, GPUs cannot become shared.
func (l *Lab) activate(ctx *simulator.Context, host *gpuHost, xorg bool) {
	l.mu.Lock()
	for _, g := range host.gpus {
		if !g.inUse() && (xorg || g.configuredType != typeShared) {
			g.activeType = g.configuredType
			g.Mode = g.configuredMode
		}
	}
	l.mu.Unlock()
	l.publish(ctx, host)
}
