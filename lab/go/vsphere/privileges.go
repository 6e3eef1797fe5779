package main

import (
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// What users may do who are not the administrator. Everybody may look at
// everything; privileges are held on the whole inventory. Which call needs which
// privilege is from VMware's API reference, and pyVmomi's tables say the same;
// that the settings of a clone need those of a reconfiguration is assumed.

// What a deployed VM takes beside the privileges of its settings is VMware's table
// "Required Privileges for Common Tasks" (vsphere.md 9).

// need is a privilege that a call takes, and the object it is missing on.
type need struct {
	privilege string
	object    types.ManagedObjectReference
}

var methodPrivileges = map[string]string{
	"PowerOnVM_Task":       "VirtualMachine.Interact.PowerOn",
	"PowerOffVM_Task":      "VirtualMachine.Interact.PowerOff",
	"ShutdownGuest":        "VirtualMachine.Interact.PowerOff",
	"SuspendVM_Task":       "VirtualMachine.Interact.Suspend",
	"ResetVM_Task":         "VirtualMachine.Interact.Reset",
	"UpgradeVM_Task":       "VirtualMachine.Config.UpgradeVirtualHardware",
	"UpdateGraphicsConfig": "Host.Config.Settings",
	"UpdatePassthruConfig": "Host.Config.PciPassthru",
	"RestartService":       "Host.Config.NetService",
	// Refreshing is more than reading, as the API reference says.
	"RefreshGraphicsManager": "Host.Config.Settings",
}

// mayLogIn: all users of a lab share one password.
func (l *Lab) mayLogIn(login credentials, tried *types.Login) bool {
	known := tried.UserName == login.User || slices.ContainsFunc(l.inventory.Users, func(user UserSpec) bool { return user.Name == tried.UserName })
	return known && tried.Password == login.Password
}

// forbidden refuses a call for which its user lacks a privilege.
func (l *Lab) forbidden(ctx *simulator.Context, method *simulator.Method) *refusal {
	if ctx.Session == nil {
		return nil
	}
	for _, needed := range l.needs(ctx, method) {
		if !l.granted(ctx, needed.privilege) {
			return refuse(&types.NoPermission{Object: &needed.object, PrivilegeId: needed.privilege}, "Permission to perform this operation was denied.")
		}
	}
	return nil
}

// policyRoute sees every call to the storage policies, which are a service of their
// own. Reading them takes a privilege on vCenter itself.
func (l *Lab) policyRoute(ctx *simulator.Context, method *simulator.Method) (mo.Reference, types.BaseMethodFault) {
	const privilege = "StorageProfile.View"
	if ctx.Session == nil || method.This.Type != "PbmProfileProfileManager" || l.granted(ctx, privilege) {
		return nil, nil
	}
	// Which fault a real service raises is unknown. This one names no privilege.
	return nil, &types.SecurityError{}
}

// granted says whether the user of this session has a privilege.
func (l *Lab) granted(ctx *simulator.Context, privilege string) bool {
	i := slices.IndexFunc(l.inventory.Users, func(user UserSpec) bool { return user.Name == ctx.Session.UserName })
	return i < 0 || slices.Contains(l.inventory.Users[i].Privileges, privilege)
}

// HasPrivilegeOnEntities answers for the session that asks; others are not looked up.
func (g *authorizationGate) HasPrivilegeOnEntities(ctx *simulator.Context, req *types.HasPrivilegeOnEntities) soap.HasFault {
	if req.SessionId != ctx.Session.Key {
		return refuse(&types.NotFound{}, "The session does not exist.").soap()
	}
	var answer []types.EntityPrivilege
	for _, entity := range req.Entity {
		held := types.EntityPrivilege{Entity: entity}
		for _, id := range req.PrivId {
			held.PrivAvailability = append(held.PrivAvailability, types.PrivilegeAvailability{PrivId: id, IsGranted: g.lab.granted(ctx, id)})
		}
		answer = append(answer, held)
	}
	return &methods.HasPrivilegeOnEntitiesBody{Res: &types.HasPrivilegeOnEntitiesResponse{Returnval: answer}}
}

func (l *Lab) needs(ctx *simulator.Context, method *simulator.Method) []need {
	on := func(object types.ManagedObjectReference, privileges ...string) []need {
		var out []need
		for _, privilege := range privileges {
			out = append(out, need{privilege, object})
		}
		return out
	}
	if privilege, ok := methodPrivileges[method.Name]; ok {
		return on(method.This, privilege)
	}
	switch req := method.Body.(type) {
	case *types.Destroy_Task:
		if req.This.Type == "VirtualMachine" {
			return on(req.This, "VirtualMachine.Inventory.Delete")
		}
	case *types.PowerOnMultiVM_Task:
		out := on(req.This, "VirtualMachine.Interact.PowerOn")
		for _, vm := range req.Vm {
			out = append(out, on(vm, "VirtualMachine.Interact.PowerOn")...)
		}
		return out
	case *types.ReconfigVM_Task:
		if vm := l.vm(ctx, req.This); vm != nil {
			return on(req.This, configPrivileges(vm, &req.Spec)...)
		}
	case *types.CloneVM_Task:
		if source := l.vm(ctx, req.This); source != nil {
			return l.cloneNeeds(source, req, on)
		}
	}
	return nil
}

func (l *Lab) cloneNeeds(source *simulator.VirtualMachine, req *types.CloneVM_Task, on func(types.ManagedObjectReference, ...string) []need) []need {
	provisioning := "VirtualMachine.Provisioning.Clone"
	if source.Config.Template {
		provisioning = "VirtualMachine.Provisioning.DeployTemplate"
	}
	out := append(on(source.Self, provisioning), on(req.Folder, "VirtualMachine.Inventory.CreateFromExisting", "VirtualMachine.Config.AddNewDisk")...)
	for _, network := range source.Network {
		out = append(out, on(network, "Network.Assign")...)
	}
	if pool := req.Spec.Location.Pool; pool != nil {
		out = append(out, on(*pool, "Resource.AssignVMToPool")...)
	}
	store := req.Spec.Location.Datastore
	if store == nil && len(source.Datastore) > 0 {
		store = &source.Datastore[0]
	}
	if store != nil {
		out = append(out, on(*store, "Datastore.AllocateSpace")...)
	}
	if config := req.Spec.Config; config != nil {
		out = append(out, on(req.Folder, configPrivileges(source, config)...)...)
	}
	return out
}

// configPrivileges are those for the changes that a spec really makes.
func configPrivileges(vm *simulator.VirtualMachine, spec *types.VirtualMachineConfigSpec) []string {
	var out []string
	want := func(privilege string, changes bool) {
		if changes && !slices.Contains(out, privilege) {
			out = append(out, privilege)
		}
	}
	want("VirtualMachine.Config.CPUCount", spec.NumCPUs != 0 && spec.NumCPUs != vm.Config.Hardware.NumCPU)
	want("VirtualMachine.Config.Memory", spec.MemoryMB != 0 && spec.MemoryMB != int64(vm.Config.Hardware.MemoryMB))
	want("VirtualMachine.Config.Annotation", spec.Annotation != "" && spec.Annotation != vm.Config.Annotation)
	want("VirtualMachine.Config.Resource", spec.MemoryReservationLockedToMax != nil || spec.MemoryAllocation != nil || spec.CpuAllocation != nil)
	want("VirtualMachine.Config.AdvancedConfig", len(spec.ExtraConfig) > 0)
	want("VirtualMachine.Config.Settings", spec.Firmware != "" && spec.Firmware != vm.Config.Firmware)
	for _, change := range spec.DeviceChange {
		device := change.GetVirtualDeviceConfigSpec()
		_, disk := device.Device.(*types.VirtualDisk)
		card, isCard := device.Device.(types.BaseVirtualEthernetCard)
		edited := device.Operation == types.VirtualDeviceConfigSpecOperationEdit
		want("VirtualMachine.Config.DiskExtend", disk && edited)
		want("VirtualMachine.Config.EditDevice", !disk && edited)
		want("VirtualMachine.Config.AddRemoveDevice", !disk && !edited)
		want("Network.Assign", isCard && card.GetVirtualEthernetCard().Backing != nil && device.Operation != types.VirtualDeviceConfigSpecOperationRemove)
	}
	return out
}
