package main

import (
	"fmt"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/simulator/vpx"
	"github.com/vmware/govmomi/vim25/types"

	"vgpu-fleet.example/lab/vsphere/admission"
)

const (
	// hotMigrateSetting lets running VMs with vGPUs migrate; false by default (vsphere.md 7.1).
	hotMigrateSetting = "vgpu.hotmigrate.enabled"
	// automationOption set to -1 lets DRS move VMs with vGPUs off a host that enters
	// maintenance mode (vsphere.md 7.2).
	automationOption = "VgpuMMAutomationTimeoutSecs"
)

func (l *Lab) settings(ctx *simulator.Context) *simulator.OptionManager {
	manager, _ := ctx.Map.Get(*vpx.ServiceContent.Setting).(*simulator.OptionManager)
	return manager
}

// enableHotMigration writes the setting if the scenario has it. Otherwise it is
// missing, which is as good as false.
func (l *Lab) enableHotMigration() error {
	if l.inventory.HotMigrate == nil {
		return nil
	}
	manager := l.settings(l.ctx)
	if manager == nil {
		return fmt.Errorf("the simulator has no settings")
	}
	manager.Setting = append(manager.Setting, &types.OptionValue{Key: hotMigrateSetting, Value: *l.inventory.HotMigrate})
	return nil
}

// hotMigrates reads the setting, which takes effect at once.
func (l *Lab) hotMigrates(ctx *simulator.Context) bool {
	manager := l.settings(ctx)
	if manager == nil {
		return false
	}
	for _, option := range manager.Setting {
		value := option.GetOptionValue()
		if value.Key == hotMigrateSetting {
			return fmt.Sprint(value.Value) == "true"
		}
	}
	return false
}

// evacuatesVgpus says whether DRS moves VMs with vGPUs off a host of the cluster.
func (l *Lab) evacuatesVgpus(ctx *simulator.Context, cluster types.ManagedObjectReference) bool {
	object, ok := ctx.Map.Get(cluster).(*simulator.ClusterComputeResource)
	if !ok || !l.hotMigrates(ctx) {
		return false
	}
	config, ok := object.ConfigurationEx.(*types.ClusterConfigInfoEx)
	if !ok {
		return false
	}
	for _, option := range config.DrsConfig.Option {
		value := option.GetOptionValue()
		if value.Key == automationOption {
			return fmt.Sprint(value.Value) == "-1"
		}
	}
	return false
}

// stunTimes are estimates for C and Q profiles, in seconds: the time to copy the
// framebuffer at that bandwidth in Mbps. How vSphere computes them is unknown.
func stunTimes(profile admission.Profile) []types.VirtualMachineVMotionStunTimeInfo {
	if profile.Series != "C" && profile.Series != "Q" {
		return nil
	}
	var out []types.VirtualMachineVMotionStunTimeInfo
	for _, bandwidth := range []int64{10_000, 25_000, 100_000} {
		megabits := int64(profile.FramebufferMiB) * 8
		out = append(out, types.VirtualMachineVMotionStunTimeInfo{MigrationBW: bandwidth, StunTime: (megabits + bandwidth - 1) / bandwidth})
	}
	return out
}
