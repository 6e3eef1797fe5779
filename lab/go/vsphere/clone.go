package main

import (
	"slices"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// CloneVMTask: a clone inherits all of its source, the whole ConfigSpec is
// applied to it, and powerOn goes through admission (vsphere.md 5.5).
func (g *vmGate) CloneVMTask(ctx *simulator.Context, req *types.CloneVM_Task) soap.HasFault {
	lab, source := g.lab, g.lab.vm(ctx, req.This)
	return lab.perform(ctx, operation{
		method: "CloneVM_Task", description: "VirtualMachine.clone", entity: source, name: source.Name,
		check: func(ctx *simulator.Context) *refusal { return lab.checkClone(ctx, source, req) },
		run:   func(ctx *simulator.Context) (types.AnyType, *refusal) { return lab.clone(ctx, source, req) },
	}, func(task types.ManagedObjectReference) soap.HasFault {
		return &methods.CloneVM_TaskBody{Res: &types.CloneVM_TaskResponse{Returnval: task}}
	})
}

func (l *Lab) checkClone(ctx *simulator.Context, source *simulator.VirtualMachine, req *types.CloneVM_Task) *refusal {
	folder, ok := ctx.Map.Get(req.Folder).(*simulator.Folder)
	if !ok {
		return refuse(&types.InvalidArgument{InvalidProperty: "folder"}, "A specified parameter was not correct: folder.")
	}
	if other := ctx.Map.FindByName(storedName(req.Name), folder.ChildEntity); other != nil {
		return refuse(&types.DuplicateName{Name: req.Name, Object: other.Reference()}, "The name '%s' already exists.", req.Name)
	}
	location := &req.Spec.Location
	if location.Pool == nil && source.Config.Template && !req.Spec.Template {
		return refuse(&types.InvalidArgument{InvalidProperty: "spec.location.pool"}, "A specified parameter was not correct: spec.location.pool.")
	}
	if location.Datastore != nil {
		if _, ok := ctx.Map.Get(*location.Datastore).(*simulator.Datastore); !ok {
			return refuse(&types.InvalidArgument{InvalidProperty: "spec.location.datastore"}, "A specified parameter was not correct: spec.location.datastore.")
		}
	}
	host, refused := l.cloneHost(ctx, source, location)
	if refused != nil {
		return refused
	}
	if linked(req) && req.Spec.Snapshot == nil {
		return refuse(&types.InvalidArgument{InvalidProperty: "spec.snapshot"}, "A linked clone of %s needs a snapshot to start from.", source.Name)
	}
	if refused := l.checkSpace(ctx, source, req); refused != nil {
		return refused
	}
	at := l.situation(ctx, source)
	at.vmName, at.power = req.Name, poweredOff
	at.offered = map[string]bool{}
	l.offerIn(ctx, host.cluster, at.offered)
	if config := req.Spec.Config; config != nil {
		if config.Version != "" {
			at.hardware = config.Version
		}
		if refused := reservedOption(config.ExtraConfig); refused != nil {
			return refused
		}
		if refused := l.checkCloneMemory(source, host, req.Name, config); refused != nil {
			return refused
		}
		if _, refused := l.checkDevices(at, config.DeviceChange); refused != nil {
			return refused
		}
		at.groupsOffered = l.groupsOf(l.clusterHosts(ctx, host.cluster))
		if refused := l.checkGroupChange(at, config); refused != nil {
			return refused
		}
	}
	_, refused = l.checkDevices(at, location.DeviceChange)
	return refused
}

// checkCloneMemory: a lock is for a clone what it is for its source (vsphere.md 1.3).
func (l *Lab) checkCloneMemory(source *simulator.VirtualMachine, host *gpuHost, name string, config *types.VirtualMachineConfigSpec) *refusal {
	locked := source.Config.MemoryReservationLockedToMax
	if config.MemoryReservationLockedToMax != nil {
		locked = config.MemoryReservationLockedToMax
	}
	if locked == nil || !*locked {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return tooMuchMemory(name, memoryAfter(source, config), l.largestHostMB(host.cluster))
}

func linked(req *types.CloneVM_Task) bool {
	return req.Spec.Location.DiskMoveType == string(types.VirtualMachineRelocateDiskMoveOptionsCreateNewChildDiskBacking)
}

// cloneHost is where the clone is registered: the named host, that of the source
// if the pool allows it, or any host of the pool.
func (l *Lab) cloneHost(ctx *simulator.Context, source *simulator.VirtualMachine, location *types.VirtualMachineRelocateSpec) (*gpuHost, *refusal) {
	if location.Host != nil {
		if host := l.host(location.Host); host != nil {
			return host, nil
		}
		return nil, refuse(&types.InvalidArgument{InvalidProperty: "spec.location.host"}, "A specified parameter was not correct: spec.location.host.")
	}
	current := l.host(source.Runtime.Host)
	if location.Pool == nil {
		return current, nil
	}
	pool, ok := ctx.Map.Get(*location.Pool).(*simulator.ResourcePool)
	if !ok {
		return nil, refuse(&types.InvalidArgument{InvalidProperty: "spec.location.pool"}, "A specified parameter was not correct: spec.location.pool.")
	}
	hosts := l.clusterHosts(ctx, pool.Owner)
	if slices.Contains(hosts, current) {
		return current, nil
	}
	for _, host := range hosts {
		if state := l.hostObject(ctx, host).Runtime; state.ConnectionState == types.HostSystemConnectionStateConnected && !state.InMaintenanceMode {
			return host, nil
		}
	}
	return nil, refuse(&types.NoCompatibleHost{}, "No host of the resource pool is available.")
}

func (l *Lab) clone(ctx *simulator.Context, source *simulator.VirtualMachine, req *types.CloneVM_Task) (types.AnyType, *refusal) {
	host, refused := l.cloneHost(ctx, source, &req.Spec.Location)
	if refused != nil {
		return nil, refused
	}
	plain := *req
	plain.Name = plainName(req.Name)
	plain.Spec.Config = nil
	plain.Spec.PowerOn = false
	plain.Spec.Template = false
	plain.Spec.Location.Host = &host.ref
	if plain.Spec.Location.Pool == nil {
		plain.Spec.Location.Pool = ctx.Map.Get(host.cluster).(*simulator.ClusterComputeResource).ResourcePool
	}
	if config := req.Spec.Config; config != nil && (config.Uuid != "" || config.InstanceUuid != "") {
		plain.Spec.Config = &types.VirtualMachineConfigSpec{Uuid: config.Uuid, InstanceUuid: config.InstanceUuid}
	}
	body := source.CloneVMTask(ctx, &plain)
	result, refused := l.inner(ctx, body, func() types.ManagedObjectReference {
		return body.(*methods.CloneVM_TaskBody).Res.Returnval
	})
	if refused != nil {
		return nil, refused
	}
	clone := l.vm(ctx, result.(types.ManagedObjectReference))
	l.inherit(source, clone)
	fresh := l.freshContext(ctx)
	fresh.WithLock(clone, func() {
		rename(fresh, clone, req.Name)
		refused = l.finishClone(fresh, source, clone, req)
	})
	if refused != nil {
		return nil, refused
	}
	return clone.Self, nil
}

// inherit copies what the lab knows of the guest.
func (l *Lab) inherit(source, clone *simulator.VirtualMachine) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := machine{}
	if from := l.machines[source.Self]; from != nil {
		known = *from
	}
	l.machines[clone.Self] = &known
}

func (l *Lab) finishClone(ctx *simulator.Context, source, clone *simulator.VirtualMachine, req *types.CloneVM_Task) *refusal {
	if linked(req) {
		linkDisks(source, clone)
	}
	clone.Config.DeviceGroups = source.Config.DeviceGroups
	refused := l.reconfigure(ctx, clone, inherited(source))
	if config := req.Spec.Config; refused == nil && config != nil {
		own := *config
		own.ChangeVersion, own.Files, own.Name = "", nil, ""
		keepOwnFiles(clone, own.DeviceChange)
		refused = l.reconfigure(ctx, clone, &own)
	}
	l.version.forget(clone.Config)
	if refused != nil {
		// A failed clone leaves nothing behind.
		_, _ = l.destroy(ctx, clone)
		return refused
	}
	if req.Spec.Template {
		clone.MarkAsTemplate(&types.MarkAsTemplate{This: clone.Self})
		return nil
	}
	if req.Spec.PowerOn {
		return l.powerOn(ctx, clone, nil)
	}
	return nil
}

// inherited is what govmomi forgets to copy from the source.
func inherited(source *simulator.VirtualMachine) *types.VirtualMachineConfigSpec {
	config := source.Config
	spec := &types.VirtualMachineConfigSpec{
		Firmware:                     config.Firmware,
		Annotation:                   config.Annotation,
		MemoryReservationLockedToMax: config.MemoryReservationLockedToMax,
		CpuHotAddEnabled:             config.CpuHotAddEnabled,
		MemoryHotAddEnabled:          config.MemoryHotAddEnabled,
		NestedHVEnabled:              config.NestedHVEnabled,
	}
	if config.MemoryAllocation != nil {
		allocation := *config.MemoryAllocation
		spec.MemoryAllocation = &allocation
	}
	for _, option := range config.ExtraConfig {
		value := *option.GetOptionValue()
		if !strings.HasPrefix(value.Key, "govcsim") {
			spec.ExtraConfig = append(spec.ExtraConfig, &value)
		}
	}
	return spec
}

// keepOwnFiles: a clone's disks are edited by the devices of its source, whose
// files they name. govmomi would take those for the clone's own.
func keepOwnFiles(clone *simulator.VirtualMachine, changes []types.BaseVirtualDeviceConfigSpec) {
	for _, change := range changes {
		disk, ok := change.GetVirtualDeviceConfigSpec().Device.(*types.VirtualDisk)
		if !ok {
			continue
		}
		for _, device := range clone.Config.Hardware.Device {
			if mine := device.GetVirtualDevice(); mine.Key == disk.Key {
				disk.Backing = mine.Backing
			}
		}
	}
}

// linkDisks makes the disks of a linked clone children of the source's disks.
func linkDisks(source, clone *simulator.VirtualMachine) {
	parents := map[int32]*types.VirtualDiskFlatVer2BackingInfo{}
	for _, device := range source.Config.Hardware.Device {
		if disk, ok := device.(*types.VirtualDisk); ok {
			if backing, ok := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo); ok {
				parents[disk.Key] = backing
			}
		}
	}
	for _, device := range clone.Config.Hardware.Device {
		if disk, ok := device.(*types.VirtualDisk); ok {
			if backing, ok := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo); ok && parents[disk.Key] != nil {
				parent := *parents[disk.Key]
				backing.Parent = &parent
			}
		}
	}
}

func (g *vmGate) DestroyTask(ctx *simulator.Context, req *types.Destroy_Task) soap.HasFault {
	lab, vm := g.lab, g.lab.vm(ctx, req.This)
	return lab.perform(ctx, operation{
		method: "Destroy_Task", description: "VirtualMachine.destroy", entity: vm, name: vm.Name,
		check: func(*simulator.Context) *refusal {
			if vm.Runtime.PowerState != poweredOn {
				return nil
			}
			return refuse(&types.InvalidPowerState{RequestedState: poweredOff, ExistingState: poweredOn},
				"The attempted operation cannot be performed in the current state (%s) of virtual machine %s.", poweredOn, vm.Name)
		},
		run: func(ctx *simulator.Context) (types.AnyType, *refusal) { return lab.destroy(ctx, vm) },
	}, func(task types.ManagedObjectReference) soap.HasFault {
		return &methods.Destroy_TaskBody{Res: &types.Destroy_TaskResponse{Returnval: task}}
	})
}

func (l *Lab) destroy(ctx *simulator.Context, vm *simulator.VirtualMachine) (types.AnyType, *refusal) {
	body := vm.DestroyTask(ctx, &types.Destroy_Task{This: vm.Self})
	return l.inner(ctx, body, func() types.ManagedObjectReference {
		return body.(*methods.Destroy_TaskBody).Res.Returnval
	})
}

func (g *vmGate) UpgradeVMTask(ctx *simulator.Context, req *types.UpgradeVM_Task) soap.HasFault {
	lab, vm := g.lab, g.lab.vm(ctx, req.This)
	return lab.perform(ctx, operation{
		method: "UpgradeVM_Task", description: "VirtualMachine.upgradeVirtualHardware", entity: vm, name: vm.Name,
		check: func(*simulator.Context) *refusal {
			if vm.Runtime.PowerState == poweredOff {
				return nil
			}
			return refuse(&types.InvalidPowerState{RequestedState: poweredOff, ExistingState: vm.Runtime.PowerState},
				"The attempted operation cannot be performed in the current state (%s) of virtual machine %s.", vm.Runtime.PowerState, vm.Name)
		},
		run: func(ctx *simulator.Context) (types.AnyType, *refusal) {
			body := vm.UpgradeVMTask(ctx, req)
			return lab.inner(ctx, body, func() types.ManagedObjectReference {
				return body.(*methods.UpgradeVM_TaskBody).Res.Returnval
			})
		},
	}, func(task types.ManagedObjectReference) soap.HasFault {
		return &methods.UpgradeVM_TaskBody{Res: &types.UpgradeVM_TaskResponse{Returnval: task}}
	})
}

// CreateVMTask checks what would crash govmomi, and numbers the devices.
func (g *folderGate) CreateVMTask(ctx *simulator.Context, req *types.CreateVM_Task) soap.HasFault {
	lab := g.lab
	folder := ctx.Map.Get(req.This).(*simulator.Folder)
	return lab.perform(ctx, operation{
		method: "CreateVM_Task", description: "Folder.createVm", entity: folder, name: folder.Name,
		check: func(ctx *simulator.Context) *refusal { return lab.checkCreate(ctx, folder, req) },
		run: func(ctx *simulator.Context) (types.AnyType, *refusal) {
			lab.number(nil, req.Config.DeviceChange)
			body := folder.CreateVMTask(ctx, req)
			result, refused := lab.inner(ctx, body, func() types.ManagedObjectReference {
				return body.(*methods.CreateVM_TaskBody).Res.Returnval
			})
			if refused == nil {
				vm := lab.vm(ctx, result.(types.ManagedObjectReference))
				lab.version.forget(vm.Config)
				lab.mu.Lock()
				lab.machines[vm.Self] = &machine{}
				lab.mu.Unlock()
				lab.showResources(ctx, vm)
			}
			return result, refused
		},
	}, func(task types.ManagedObjectReference) soap.HasFault {
		return &methods.CreateVM_TaskBody{Res: &types.CreateVM_TaskResponse{Returnval: task}}
	})
}

func (l *Lab) checkCreate(ctx *simulator.Context, folder *simulator.Folder, req *types.CreateVM_Task) *refusal {
	bad := func(property string) *refusal {
		return refuse(&types.InvalidArgument{InvalidProperty: property}, "A specified parameter was not correct: %s.", property)
	}
	pool, ok := ctx.Map.Get(req.Pool).(*simulator.ResourcePool)
	if !ok {
		return bad("pool")
	}
	if req.Host != nil && l.host(req.Host) == nil {
		return bad("host")
	}
	if other := ctx.Map.FindByName(req.Config.Name, folder.ChildEntity); other != nil {
		return refuse(&types.DuplicateName{Name: req.Config.Name, Object: other.Reference()}, "The name '%s' already exists.", req.Config.Name)
	}
	if req.Config.Files == nil || !l.datastoreExists(ctx, folder, req.Config.Files.VmPathName) {
		return bad("configSpec.files.vmPathName")
	}
	if refused := reservedOption(req.Config.ExtraConfig); refused != nil {
		return refused
	}
	at := deviceSituation{
		vmName: req.Config.Name, hardware: req.Config.Version, power: poweredOff,
		offered: map[string]bool{}, knownNetwork: l.networksAround(ctx, folder),
	}
	l.offerIn(ctx, pool.Owner, at.offered)
	_, refused := l.checkDevices(at, req.Config.DeviceChange)
	return refused
}

func (l *Lab) datastoreExists(ctx *simulator.Context, entity mo.Entity, path string) bool {
	end := strings.Index(path, "]")
	datacenter := datacenterOf(ctx, entity)
	return strings.HasPrefix(path, "[") && end > 0 && datacenter != nil && ctx.Map.FindByName(path[1:end], datacenter.Datastore) != nil
}

func (l *Lab) networksAround(ctx *simulator.Context, entity mo.Entity) func(string) bool {
	datacenter := datacenterOf(ctx, entity)
	return func(name string) bool {
		return datacenter != nil && ctx.Map.FindByName(name, datacenter.Network) != nil
	}
}

func datacenterOf(ctx *simulator.Context, entity mo.Entity) *simulator.Datacenter {
	for entity != nil && entity.Entity().Parent != nil {
		parent := ctx.Map.Get(*entity.Entity().Parent)
		if datacenter, ok := parent.(*simulator.Datacenter); ok {
			return datacenter
		}
		entity, _ = parent.(mo.Entity)
	}
	return nil
}
