package main

import (
	"fmt"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"
)

func (l *Lab) buildMachines(s *site) error {
	for _, spec := range s.spec.Templates {
		vm, err := l.buildMachine(s, spec)
		if err != nil {
			return fmt.Errorf("template %s: %w", spec.Name, err)
		}
		if err := asError(vm.MarkAsTemplate(&types.MarkAsTemplate{This: vm.Self})); err != nil {
			return fmt.Errorf("template %s: %w", spec.Name, err)
		}
	}
	for _, spec := range s.spec.VMs {
		vm, err := l.buildMachine(s, spec)
		if err != nil {
			return fmt.Errorf("vm %s: %w", spec.Name, err)
		}
		if err := l.setPower(vm, spec.Power); err != nil {
			return fmt.Errorf("vm %s: %w", spec.Name, err)
		}
	}
	return nil
}

func (l *Lab) setPower(vm *simulator.VirtualMachine, power string) error {
	if power == "" || power == "off" {
		return nil
	}
	ctx := l.freshContext(l.ctx)
	var refused *refusal
	ctx.WithLock(vm, func() {
		host := vm.Runtime.Host
		refused = l.powerOn(ctx, vm, host)
		if refused == nil && power == "suspended" {
			body := vm.SuspendVMTask(ctx, &types.SuspendVM_Task{This: vm.Self})
			_, refused = l.inner(ctx, body, func() types.ManagedObjectReference {
				return body.(*methods.SuspendVM_TaskBody).Res.Returnval
			})
		}
	})
	return refused.asError()
}

func (l *Lab) buildMachine(s *site, spec MachineSpec) (*simulator.VirtualMachine, error) {
	cluster, host, err := s.place(spec)
	if err != nil {
		return nil, err
	}
	pool, ok := s.pools[cluster+"/"+spec.ResourcePool]
	if !ok {
		return nil, fmt.Errorf("cluster %s has no resource pool %q", cluster, spec.ResourcePool)
	}
	folder := s.folders[spec.Folder]
	if folder == nil {
		return nil, fmt.Errorf("no folder %q", spec.Folder)
	}
	config, err := l.machineConfig(s, spec)
	if err != nil {
		return nil, err
	}
	req := &types.CreateVM_Task{This: folder.Self, Config: *config, Pool: pool, Host: &host.ref}
	ctx := l.freshContext(l.ctx)
	var result types.AnyType
	refused := l.checkCreate(ctx, folder, req)
	if refused == nil {
		ctx.WithLock(folder, func() {
			l.number(nil, req.Config.DeviceChange)
			body := folder.CreateVMTask(ctx, req)
			result, refused = l.inner(ctx, body, func() types.ManagedObjectReference {
				return body.(*methods.CreateVM_TaskBody).Res.Returnval
			})
		})
	}
	if refused != nil {
		return nil, refused.asError()
	}
	vm := l.vm(ctx, result.(types.ManagedObjectReference))
	l.machines[vm.Self] = &machine{hasTools: spec.Tools != "none", ignoresShutdown: spec.IgnoresShutdown}
	if spec.Vsga {
		renderOnHardware(vm)
	}
	if err := l.overrideDRS(ctx, vm, host, spec.DRS); err != nil {
		return nil, err
	}
	if spec.Snapshot != "" {
		ctx.WithLock(vm, func() {
			body := vm.CreateSnapshotTask(ctx, &types.CreateSnapshot_Task{This: vm.Self, Name: spec.Snapshot})
			_, refused = l.inner(ctx, body, func() types.ManagedObjectReference {
				return body.(*methods.CreateSnapshot_TaskBody).Res.Returnval
			})
		})
	}
	l.version.forget(vm.Config)
	ctx.WithLock(vm, func() {
		rename(ctx, vm, spec.Name)
		l.showResources(ctx, vm)
	})
	return vm, refused.asError()
}

// place spreads machines without a named host over their cluster.
func (s *site) place(spec MachineSpec) (string, *gpuHost, error) {
	cluster := spec.Cluster
	if cluster == "" {
		cluster = s.spec.Clusters[0].Name
		for _, candidate := range s.spec.Clusters {
			for _, host := range candidate.Hosts {
				if host.Name == spec.Host {
					cluster = candidate.Name
				}
			}
		}
	}
	hosts := s.order[cluster]
	if len(hosts) == 0 {
		return "", nil, fmt.Errorf("cluster %q has no hosts", cluster)
	}
	if spec.Host == "" {
		s.turn++
		return cluster, hosts[s.turn%len(hosts)], nil
	}
	host := s.hosts[spec.Host]
	if host == nil {
		return "", nil, fmt.Errorf("no host %q", spec.Host)
	}
	return cluster, host, nil
}

func (l *Lab) machineConfig(s *site, spec MachineSpec) (*types.VirtualMachineConfigSpec, error) {
	withDefault := func(value, fallback int64) int64 {
		if value == 0 {
			return fallback
		}
		return value
	}
	store := spec.Datastore
	if store == "" {
		if len(s.spec.Datastores) == 0 {
			return nil, fmt.Errorf("the datacenter has no datastore")
		}
		store = s.spec.Datastores[0].Name
	}
	firmware, guest := spec.Firmware, spec.GuestID
	if firmware == "" {
		firmware = string(types.GuestOsDescriptorFirmwareTypeEfi)
	}
	if guest == "" {
		guest = string(types.VirtualMachineGuestOsIdentifierUbuntu64Guest)
	}
	// An older vCenter cannot have newer hardware.
	hardware := min(int(withDefault(int64(spec.HardwareVersion), 19)), l.version.MaxHardware)
	memory := withDefault(spec.MemoryMB, 4096)
	config := &types.VirtualMachineConfigSpec{
		Name: plainName(spec.Name), GuestId: guest, Firmware: firmware, Annotation: spec.Annotation,
		Version: fmt.Sprintf("vmx-%02d", hardware), NumCPUs: int32(withDefault(int64(spec.CPUs), 2)), MemoryMB: memory,
		Files:                        &types.VirtualMachineFileInfo{VmPathName: fmt.Sprintf("[%s]", store)},
		MemoryReservationLockedToMax: types.NewBool(spec.MemoryLocked),
	}
	if spec.MemoryLocked {
		allocation := types.DefaultResourceConfigSpec().MemoryAllocation
		allocation.Reservation = types.NewInt64(memory)
		config.MemoryAllocation = &allocation
	}
	for key, value := range spec.ExtraConfig {
		config.ExtraConfig = append(config.ExtraConfig, &types.OptionValue{Key: key, Value: value})
	}
	var err error
	config.DeviceChange, err = machineDevices(spec, withDefault(spec.DiskGB, 20))
	return config, err
}

func machineDevices(spec MachineSpec, diskGB int64) ([]types.BaseVirtualDeviceConfigSpec, error) {
	var devices object.VirtualDeviceList
	scsi, err := devices.CreateSCSIController("pvscsi")
	if err != nil {
		return nil, err
	}
	disk := devices.CreateDisk(scsi.(types.BaseVirtualController), types.ManagedObjectReference{}, "")
	disk.CapacityInKB = diskGB << 20
	disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo).ThinProvisioned = types.NewBool(true)
	devices = append(devices, scsi, disk)
	networks := spec.Networks
	if len(networks) == 0 {
		networks = []string{"VM Network"}
	}
	for _, name := range networks {
		card, err := object.EthernetCardTypes().CreateEthernetCard("vmxnet3", &types.VirtualEthernetCardNetworkBackingInfo{
			VirtualDeviceDeviceBackingInfo: types.VirtualDeviceDeviceBackingInfo{DeviceName: name},
		})
		if err != nil {
			return nil, err
		}
		devices = append(devices, card)
	}
	for _, name := range spec.Vgpus {
		devices = append(devices, &types.VirtualPCIPassthrough{VirtualDevice: types.VirtualDevice{
			Backing: &types.VirtualPCIPassthroughVmiopBackingInfo{Vgpu: name},
		}})
	}
	return devices.ConfigSpec(types.VirtualDeviceConfigSpecOperationAdd)
}
