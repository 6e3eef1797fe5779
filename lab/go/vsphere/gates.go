package main

import (
	"slices"
	"sync"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// A gate takes over methods of one managed object type. govmomi dispatches by
// the reference in the request and ignores a replacement object for logged-in
// sessions, but it looks the reference up after the handler ran: rewriting it to
// the gate's own reference makes govmomi call the gate (vsphere.md 11.2). The request
// body keeps the original reference.
type gate struct {
	// govmomi's searches go through all objects and look for a managed object
	// in each. This one is found by none of them.
	mo.SearchIndex
	lab *Lab
}

// Gates lock the objects they work on themselves.
func (gate) Lock()   {}
func (gate) Unlock() {}

type vmGate struct{ gate }
type hostGate struct{ gate }
type folderGate struct{ gate }
type datacenterGate struct{ gate }
type clusterGate struct{ gate }
type browserGate struct{ gate }
type checkerGate struct{ gate }
type provisioningGate struct{ gate }
type authorizationGate struct{ gate }

func gateReference(kind string) types.ManagedObjectReference {
	return types.ManagedObjectReference{Type: "Lab" + kind, Value: "gate"}
}

func (*vmGate) Reference() types.ManagedObjectReference     { return gateReference("VirtualMachine") }
func (*hostGate) Reference() types.ManagedObjectReference   { return gateReference("HostSystem") }
func (*folderGate) Reference() types.ManagedObjectReference { return gateReference("Folder") }
func (*datacenterGate) Reference() types.ManagedObjectReference {
	return gateReference("Datacenter")
}
func (*clusterGate) Reference() types.ManagedObjectReference {
	return gateReference("ClusterComputeResource")
}
func (*browserGate) Reference() types.ManagedObjectReference {
	return gateReference("EnvironmentBrowser")
}
func (*checkerGate) Reference() types.ManagedObjectReference {
	return gateReference("VirtualMachineCompatibilityChecker")
}
func (*provisioningGate) Reference() types.ManagedObjectReference {
	return gateReference("VirtualMachineProvisioningChecker")
}

func (*authorizationGate) Reference() types.ManagedObjectReference {
	return gateReference("AuthorizationManager")
}

var gated = map[string][]string{
	"VirtualMachine": {
		"ReconfigVM_Task", "PowerOnVM_Task", "PowerOffVM_Task", "SuspendVM_Task", "ResetVM_Task", "ShutdownGuest",
		"CloneVM_Task", "Destroy_Task", "UpgradeVM_Task", "RelocateVM_Task", "MigrateVM_Task",
	},
	"HostSystem": {
		"EnterMaintenanceMode_Task", "ExitMaintenanceMode_Task", "DisconnectHost_Task", "ReconnectHost_Task", "RebootHost_Task",
	},
	"Folder":                             {"CreateVM_Task", "AddStandaloneHost_Task"},
	"Datacenter":                         {"PowerOnMultiVM_Task"},
	"ClusterComputeResource":             {"PlaceVm", "AddHost_Task"},
	"EnvironmentBrowser":                 {"QueryConfigTarget", "QueryConfigOption", "QueryConfigOptionEx"},
	"VirtualMachineCompatibilityChecker": {"CheckVmConfig_Task", "CheckPowerOn_Task", "CheckCompatibility_Task"},
	"VirtualMachineProvisioningChecker":  {"CheckClone_Task"},
	"AuthorizationManager":               {"HasPrivilegeOnEntities"},
}

func (l *Lab) openGates() {
	g := gate{lab: l}
	for _, object := range []mo.Reference{
		&vmGate{g}, &hostGate{g}, &folderGate{g}, &datacenterGate{g}, &clusterGate{g}, &browserGate{g}, &checkerGate{g},
		&provisioningGate{g}, &authorizationGate{g},
	} {
		l.ctx.Map.Put(object)
	}
	l.ctx.Map.AddHandler(&bookkeeper{l})
	l.ctx.Map.Handler = l.route
}

// route sees every call before govmomi does.
func (l *Lab) route(ctx *simulator.Context, method *simulator.Method) (mo.Reference, types.BaseMethodFault) {
	// The session of this call is found already, so the next call is the first one without a session. govmomi answers it
	// as a server does: a fault for most methods, and for reads a missingSet in which each property has the fault.
	if l.rpcs.count(method.Name) {
		l.expireSessions()
	}
	if refused := l.forbidden(ctx, method); refused != nil {
		return nil, refused.localized().Fault
	}
	if slices.Contains(gated[method.This.Type], method.Name) && l.ctx.Map.Get(method.This) != nil {
		method.This = gateReference(method.This.Type)
		return nil, nil
	}
	// Gated methods handle injected faults themselves, as a task or at once.
	if injected := l.faults.match(method.Name, method.This, ""); injected != nil {
		refused := injected.refusal()
		return nil, refused.localized().Fault
	}
	return nil, nil
}

// rpcCounter counts calls by method, and ends all sessions after a number of calls.
type rpcCounter struct {
	mu          sync.Mutex
	methods     map[string]int64
	expireAfter int64
}

// count returns true when the sessions must end before the next call.
func (r *rpcCounter) count(method string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.methods == nil {
		r.methods = map[string]int64{}
	}
	r.methods[method]++
	if r.expireAfter == 0 {
		return false
	}
	r.expireAfter--
	return r.expireAfter == 1
}

// expireSessions logs everybody out, as a real server does with idle sessions.
func (l *Lab) expireSessions() int {
	ctx := l.ctx
	// Only a session's view of the manager has the list of sessions.
	manager := ctx.Session.Get(ctx.Map.SessionManager().Self).(*simulator.SessionManager)
	var keys []string
	for _, session := range manager.SessionList {
		keys = append(keys, session.Key)
	}
	manager.TerminateSession(ctx, &types.TerminateSession{This: manager.Self, SessionId: keys})
	return len(keys)
}
