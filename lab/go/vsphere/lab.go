package main

import (
	"sync"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"vgpu-fleet.example/lab/vsphere/admission"
)

// Lab is the simulated vCenter: govmomi's registry, and beside it what govmomi
// does not know, the GPUs of the hosts and who runs on them.
type Lab struct {
	version   Version
	inventory *Inventory
	boards    map[string]*Board
	stateDir  string

	service *simulator.Service
	ctx     *simulator.Context

	// mu guards the books: GPU slots, passed-through devices, reserved memory.
	mu       sync.Mutex
	hosts    map[types.ManagedObjectReference]*gpuHost
	machines map[types.ManagedObjectReference]*machine

	tasks   taskPace
	rpcs    rpcCounter
	faults  faultRules
	conduct behaviour
	holds   holds
}

// machine is what the lab knows of a VM beyond its API object.
type machine struct {
	hasTools        bool
	ignoresShutdown bool
}

// gpuHost is one ESXi host with its GPUs.
type gpuHost struct {
	ref      types.ManagedObjectReference
	name     string
	cluster  types.ManagedObjectReference
	memoryMB int64
	driver   bool

	gpus []*gpu
	// All devices that could be passed through, and those that are.
	devices     []*pciDevice
	passthrough []*pciDevice
	groups      []*deviceGroup
	// Whether passthrough is switched without a reboot.
	rebinds     bool
	defaultType string
	policy      admission.Policy
	reservedMB  map[string]int64

	manager  *graphicsManager
	services *serviceSystem
	passthru *passthruSystem
}

type gpu struct {
	admission.Gpu
	board    *Board
	deviceID uint16

	// What is in force, and what a restart of Xorg or of the host puts in force.
	activeType     string
	configuredType string
	configuredMode admission.Mode

	// The VMs that graphicsInfo shows; the slots have those that are there.
	listed map[string]bool

	// Running VMs with vSphere's own virtual graphics on this GPU.
	vsga []types.ManagedObjectReference
}

type pciDevice struct {
	spec     PciDeviceSpec
	vendorID uint16
	deviceID uint16
	holder   string
	// What is configured, and what is in force.
	enabled bool
	active  bool
}

const (
	typeSharedDirect = "sharedDirect"
	typeShared       = "shared"
	typeDirect       = "direct"
	typeBasic        = "basic"
)

// shareable are the GPUs of a host that can carry vGPUs now.
func (h *gpuHost) shareable() []*admission.Gpu {
	var out []*admission.Gpu
	if !h.driver {
		return out
	}
	for _, g := range h.gpus {
		if g.activeType == typeSharedDirect {
			out = append(out, &g.Gpu)
		}
	}
	return out
}

// profiles are the vGPU types the host offers now, board by board.
func (h *gpuHost) profiles() []admission.Profile {
	var out []admission.Profile
	seen := map[string]bool{}
	if !h.driver {
		return out
	}
	for _, g := range h.gpus {
		if g.activeType != typeSharedDirect {
			continue
		}
		for _, p := range g.board.ProfileList {
			if profile, offered := g.Offers(p.Name); offered && !seen[p.Name] {
				seen[p.Name] = true
				out = append(out, profile)
			}
		}
	}
	return out
}

func (l *Lab) host(ref *types.ManagedObjectReference) *gpuHost {
	if ref == nil {
		return nil
	}
	return l.hosts[*ref]
}

// clusterHosts are the hosts a VM of the cluster can run on, in inventory order.
func (l *Lab) clusterHosts(ctx *simulator.Context, cluster types.ManagedObjectReference) []*gpuHost {
	var out []*gpuHost
	if object, ok := ctx.Map.Get(cluster).(*simulator.ClusterComputeResource); ok {
		for _, ref := range object.Host {
			if host := l.hosts[ref]; host != nil {
				out = append(out, host)
			}
		}
	}
	return out
}

func (l *Lab) vm(ctx *simulator.Context, ref types.ManagedObjectReference) *simulator.VirtualMachine {
	vm, _ := ctx.Map.Get(ref).(*simulator.VirtualMachine)
	return vm
}

func (l *Lab) hostObject(ctx *simulator.Context, host *gpuHost) *simulator.HostSystem {
	return ctx.Map.Get(host.ref).(*simulator.HostSystem)
}

// profile finds a vGPU type by its exact name among all boards.
func (l *Lab) profile(name string) (admission.Profile, bool) {
	for _, board := range l.boards {
		if profile, ok := board.Profiles[name]; ok {
			return profile, true
		}
	}
	return admission.Profile{}, false
}

// release frees what a VM holds and tells the hosts' watchers.
func (l *Lab) release(ctx *simulator.Context, vm types.ManagedObjectReference) {
	l.mu.Lock()
	var touched []*gpuHost
	for _, host := range l.hosts {
		delete(host.reservedMB, vm.Value)
		changed := false
		for _, g := range host.gpus {
			changed = g.Release(vm.Value) || changed
			changed = g.releaseGraphics(vm) || changed
		}
		for _, device := range host.passthrough {
			if device.holder == vm.Value {
				device.holder = ""
				changed = true
			}
		}
		if changed {
			touched = append(touched, host)
		}
	}
	l.mu.Unlock()
	for _, host := range touched {
		l.publish(ctx, host)
	}
}

// bookkeeper releases GPUs whenever a VM stops running, however that came
// about: power off, guest shutdown, suspend. Only stopped VMs can be destroyed.
type bookkeeper struct{ lab *Lab }

func (b *bookkeeper) Reference() types.ManagedObjectReference {
	return types.ManagedObjectReference{Type: "LabBookkeeper", Value: "bookkeeper"}
}

func (b *bookkeeper) PutObject(*simulator.Context, mo.Reference) {}

func (b *bookkeeper) UpdateObject(ctx *simulator.Context, object mo.Reference, changes []types.PropertyChange) {
	vm, ok := object.(*mo.VirtualMachine)
	if !ok || vm.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn {
		return
	}
	for _, change := range changes {
		if change.Name == "runtime.powerState" {
			b.lab.release(ctx, vm.Self)
			return
		}
	}
}

func (b *bookkeeper) RemoveObject(_ *simulator.Context, ref types.ManagedObjectReference) {
	if ref.Type == "VirtualMachine" {
		b.lab.mu.Lock()
		delete(b.lab.machines, ref)
		b.lab.mu.Unlock()
	}
}
