package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/simulator/esx"
	"github.com/vmware/govmomi/simulator/vpx"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"vgpu-fleet.example/lab/vsphere/admission"
)

// site is one datacenter while it is being built.
type site struct {
	spec       DatacenterSpec
	datacenter *simulator.Datacenter
	clusters   map[string]*simulator.ClusterComputeResource
	hosts      map[string]*gpuHost
	order      map[string][]*gpuHost
	pools      map[string]types.ManagedObjectReference
	folders    map[string]*simulator.Folder
	turn       int
}

// newLab builds the world of an inventory.
func newLab(inventory *Inventory, version Version, stateDir string) (*Lab, error) {
	boards, err := loadBoards()
	if err != nil {
		return nil, err
	}
	content := vpx.ServiceContent
	content.About.Version, content.About.ApiVersion, content.About.Build = version.Product, version.API, version.Build
	content.About.FullName = fmt.Sprintf("VMware vCenter Server %s build-%s", version.Product, version.Build)
	version.forget(&content)
	// govmomi derives the hardware versions of a host from this, and panics on
	// releases it does not know.
	esx.HostSystem.Config.Product.Version = version.Like

	ctx, instance := simulator.NewServiceInstance(simulator.NewContext(), content, vpx.RootFolder)
	lab := &Lab{
		version: version, inventory: inventory, boards: boards, stateDir: stateDir, ctx: ctx,
		hosts:    map[types.ManagedObjectReference]*gpuHost{},
		machines: map[types.ManagedObjectReference]*machine{},
	}
	lab.addDirectPathProfiles(&instance.Content)
	lab.service = simulator.New(ctx, instance)
	lab.openGates()
	if err := lab.enableHotMigration(); err != nil {
		return nil, err
	}
	for _, spec := range inventory.Datacenters {
		if err := lab.buildSite(spec); err != nil {
			return nil, fmt.Errorf("datacenter %s: %w", spec.Name, err)
		}
	}
	lab.rpcs.read(true)
	return lab, nil
}

func asError(body soap.HasFault) error {
	if fault := body.Fault(); fault != nil {
		return fmt.Errorf("%s %T", fault.String, fault.VimFault())
	}
	return nil
}

func (r *refusal) asError() error {
	if r == nil {
		return nil
	}
	return fmt.Errorf("%s: %s", faultName(r.fault), r.text)
}

func (l *Lab) buildSite(spec DatacenterSpec) error {
	parent, err := l.datacenterFolder(spec.Folder)
	if err != nil {
		return err
	}
	body := parent.CreateDatacenter(l.ctx, &types.CreateDatacenter{This: parent.Self, Name: spec.Name})
	if err := asError(body); err != nil {
		return err
	}
	s := &site{
		spec:       spec,
		datacenter: l.ctx.Map.Get(body.(*methods.CreateDatacenterBody).Res.Returnval).(*simulator.Datacenter),
		clusters:   map[string]*simulator.ClusterComputeResource{},
		hosts:      map[string]*gpuHost{},
		order:      map[string][]*gpuHost{},
		pools:      map[string]types.ManagedObjectReference{},
		folders:    map[string]*simulator.Folder{},
	}
	s.folders[""] = l.ctx.Map.Get(s.datacenter.VmFolder).(*simulator.Folder)
	steps := []func(*site) error{l.buildClusters, l.buildDatastores, l.buildNetworks, l.buildFolders, l.buildMachines, l.settleHosts}
	for _, step := range steps {
		if err := step(s); err != nil {
			return err
		}
	}
	return nil
}

// datacenterFolder is the folder of that path below the root folder, made where it is missing.
func (l *Lab) datacenterFolder(path string) (*simulator.Folder, error) {
	folder := l.ctx.Map.Get(vpx.RootFolder.Self).(*simulator.Folder)
	for name := range strings.SplitSeq(path, "/") {
		if name == "" {
			continue
		}
		if known, ok := l.ctx.Map.FindByName(name, folder.ChildEntity).(*simulator.Folder); ok {
			folder = known
			continue
		}
		body := folder.CreateFolder(l.ctx, &types.CreateFolder{This: folder.Self, Name: name})
		if err := asError(body); err != nil {
			return nil, fmt.Errorf("folder %s: %w", path, err)
		}
		folder = l.ctx.Map.Get(body.(*methods.CreateFolderBody).Res.Returnval).(*simulator.Folder)
	}
	return folder, nil
}

var drsBehaviors = map[string]types.DrsBehavior{
	"":                    types.DrsBehaviorFullyAutomated,
	"fully_automated":     types.DrsBehaviorFullyAutomated,
	"partially_automated": types.DrsBehaviorPartiallyAutomated,
	"manual":              types.DrsBehaviorManual,
	"off":                 types.DrsBehaviorManual,
}

func (l *Lab) buildClusters(s *site) error {
	folder := l.ctx.Map.Get(s.datacenter.HostFolder).(*simulator.Folder)
	for _, spec := range s.spec.Clusters {
		behavior, ok := drsBehaviors[spec.DRS]
		if !ok {
			return fmt.Errorf("cluster %s: drs %q is none of fully_automated, partially_automated, manual, off", spec.Name, spec.DRS)
		}
		cluster, fault := simulator.CreateClusterComputeResource(l.ctx, folder, storedName(spec.Name), types.ClusterConfigSpecEx{})
		if fault != nil {
			return fmt.Errorf("cluster %s: %T", spec.Name, fault)
		}
		s.clusters[spec.Name] = cluster
		config := cluster.ConfigurationEx.(*types.ClusterConfigInfoEx)
		config.DrsConfig.Enabled = types.NewBool(spec.DRS != "off")
		config.DrsConfig.DefaultVmBehavior = behavior
		for key, value := range spec.DRSOptions {
			config.DrsConfig.Option = append(config.DrsConfig.Option, &types.OptionValue{Key: key, Value: value})
		}
		for _, host := range spec.Hosts {
			if err := l.buildHost(s, cluster, spec.Name, host); err != nil {
				return fmt.Errorf("host %s: %w", host.Name, err)
			}
		}
		s.pools[spec.Name+"/"] = *cluster.ResourcePool
		root := l.ctx.Map.Get(*cluster.ResourcePool).(*simulator.ResourcePool)
		for _, name := range spec.ResourcePools {
			body := root.CreateResourcePool(l.ctx, &types.CreateResourcePool{This: root.Self, Name: storedName(name), Spec: types.DefaultResourceConfigSpec()})
			if err := asError(body); err != nil {
				return fmt.Errorf("resource pool %s: %w", name, err)
			}
			s.pools[spec.Name+"/"+name] = body.(*methods.CreateResourcePoolBody).Res.Returnval
		}
	}
	return nil
}

func (l *Lab) buildHost(s *site, cluster *simulator.ClusterComputeResource, clusterName string, spec HostSpec) error {
	var result types.AnyType
	var refused *refusal
	l.ctx.WithLock(cluster, func() {
		body := cluster.AddHostTask(l.ctx, &types.AddHost_Task{This: cluster.Self, Spec: types.HostConnectSpec{HostName: spec.Name}, AsConnected: true})
		result, refused = l.inner(l.ctx, body, func() types.ManagedObjectReference {
			return body.(*methods.AddHost_TaskBody).Res.Returnval
		})
	})
	if refused != nil {
		return refused.asError()
	}
	object := l.ctx.Map.Get(result.(types.ManagedObjectReference)).(*simulator.HostSystem)
	host := &gpuHost{
		ref: object.Self, name: spec.Name, cluster: cluster.Self, memoryMB: spec.MemoryGiB * 1024, reservedMB: map[string]int64{},
		driver: spec.Driver == nil || *spec.Driver, policy: admission.Performance, defaultType: typeShared,
	}
	if host.memoryMB == 0 {
		host.memoryMB = 512 * 1024
	}
	if err := l.fitGraphics(host, spec); err != nil {
		return err
	}
	l.size(cluster, object, host, spec.CPUCores)
	if err := l.plugIn(object, host); err != nil {
		return err
	}
	host.manager = &graphicsManager{lab: l, host: host}
	host.manager.Self = types.ManagedObjectReference{Type: "HostGraphicsManager", Value: "graphicsManager-" + strings.TrimPrefix(object.Self.Value, "host-")}
	host.passthru = &passthruSystem{lab: l, host: host}
	host.passthru.Self = types.ManagedObjectReference{Type: "HostPciPassthruSystem", Value: "pciPassthruSystem-" + strings.TrimPrefix(object.Self.Value, "host-")}
	object.ConfigManager.PciPassthruSystem = &host.passthru.Self
	l.ctx.Map.Put(host.passthru)
	host.services = &serviceSystem{lab: l, host: host}
	host.services.Self = types.ManagedObjectReference{Type: "HostServiceSystem", Value: "serviceSystem-" + strings.TrimPrefix(object.Self.Value, "host-")}
	host.services.ServiceInfo = hostServices(len(host.gpus) > 0)
	object.ConfigManager.GraphicsManager = &host.manager.Self
	object.ConfigManager.ServiceSystem = &host.services.Self
	l.ctx.Map.Put(host.manager)
	l.ctx.Map.Put(host.services)
	// Before 7.0 every switch of passthrough took a reboot.
	host.rebinds = l.version.has("7.0") && (spec.Rebinds == nil || *spec.Rebinds)
	if l.version.has("7.0") {
		object.Capability.DeviceRebindWithoutRebootSupported = types.NewBool(host.rebinds)
		object.Capability.AssignableHardwareSupported = types.NewBool(true)
	}
	l.version.forget(&object.HostSystem)
	l.hosts[object.Self] = host
	s.hosts[spec.Name] = host
	s.order[clusterName] = append(s.order[clusterName], host)
	l.publish(l.ctx, host)
	return nil
}

func (l *Lab) size(cluster *simulator.ClusterComputeResource, object *simulator.HostSystem, host *gpuHost, cores int16) {
	if cores == 0 {
		cores = 64
	}
	bytes := host.memoryMB << 20
	summary := cluster.Summary.GetComputeResourceSummary()
	summary.TotalMemory += bytes - object.Summary.Hardware.MemorySize
	summary.EffectiveMemory = summary.TotalMemory
	summary.NumCpuCores += cores - object.Summary.Hardware.NumCpuCores
	object.Summary.Hardware.MemorySize = bytes
	object.Summary.Hardware.NumCpuCores = cores
	object.Summary.Hardware.NumCpuThreads = cores
	object.Hardware.MemorySize = bytes
	object.Hardware.CpuInfo.NumCpuCores = cores
	object.Hardware.CpuInfo.NumCpuThreads = cores
}

var graphicsTypes = map[string]string{
	"shared_direct": typeSharedDirect, "shared": typeShared, "direct": typeDirect, "basic": typeBasic,
}

func (l *Lab) fitGraphics(host *gpuHost, spec HostSpec) error {
	if spec.AssignmentPolicy != "" {
		host.policy = admission.Policy(spec.AssignmentPolicy)
		if host.policy != admission.Performance && host.policy != admission.Consolidation {
			return fmt.Errorf("assignment_policy %q is neither performance nor consolidation", spec.AssignmentPolicy)
		}
	}
	if spec.GraphicsType != "" {
		kind, ok := graphicsTypes[spec.GraphicsType]
		if !ok || !sharing(kind) {
			return fmt.Errorf("graphics_type %q is neither shared_direct nor shared", spec.GraphicsType)
		}
		host.defaultType = kind
	}
	for _, entry := range spec.Gpus {
		g, err := l.fitGpu(host, entry)
		if err != nil {
			return err
		}
		host.gpus = append(host.gpus, g)
		host.devices = append(host.devices, &pciDevice{
			spec: PciDeviceSpec{
				Address: g.ID, VendorID: "10de", DeviceID: fmt.Sprintf("%04x", g.deviceID),
				VendorName: "NVIDIA Corporation", DeviceName: g.board.LongName,
			},
			vendorID: nvidiaVendor, deviceID: g.deviceID, enabled: g.activeType == typeDirect,
		})
	}
	for _, entry := range spec.PciDevices {
		vendor, err := pciNumber(entry.VendorID)
		if err != nil {
			return err
		}
		device, err := pciNumber(entry.DeviceID)
		if err != nil {
			return err
		}
		enabled := entry.Passthrough == nil || *entry.Passthrough
		host.devices = append(host.devices, &pciDevice{spec: entry, vendorID: vendor, deviceID: device, enabled: enabled})
	}
	for _, device := range host.devices {
		host.bind(device)
	}
	return l.fitGroups(host, spec.DeviceGroups)
}

func (l *Lab) fitGpu(host *gpuHost, spec GpuSpec) (*gpu, error) {
	board, err := findBoard(l.boards, spec.Board)
	if err != nil {
		return nil, err
	}
	id := spec.DeviceID
	if id == "" {
		id = board.DeviceID
	}
	if id == "" {
		return nil, fmt.Errorf("the PCI id of board %s is not known here; give device_id", spec.Board)
	}
	deviceID, err := pciNumber(id)
	if err != nil {
		return nil, err
	}
	kind := host.defaultType
	if spec.GraphicsType != "" {
		if kind = graphicsTypes[spec.GraphicsType]; kind == "" {
			return nil, fmt.Errorf("graphics_type %q is none of shared_direct, shared, direct, basic", spec.GraphicsType)
		}
	}
	mode := admission.SameSize
	switch admission.Mode(spec.Mode) {
	case "", admission.SameSize:
	case admission.MixedSize:
		if !l.version.has("8.0.3.0") {
			return nil, fmt.Errorf("mode mixed_size needs 8.0.3")
		}
		mode = admission.MixedSize
	case admission.Mig:
		if !board.MigCapable {
			return nil, fmt.Errorf("board %s has no MIG", spec.Board)
		}
		mode = admission.Mig
	default:
		return nil, fmt.Errorf("mode %q is none of same_size, mixed_size, mig", spec.Mode)
	}
	return &gpu{
		Gpu: admission.Gpu{
			ID: spec.Address, FramebufferMiB: board.FramebufferGiB * 1024, Mode: mode,
			MigSlices: board.MigSlices, Profiles: board.Profiles,
		},
		board: board, deviceID: deviceID, activeType: kind, configuredType: kind, configuredMode: mode,
	}, nil
}

func (l *Lab) buildDatastores(s *site) error {
	for _, spec := range s.spec.Datastores {
		dir := filepath.Join(l.stateDir, "datastores", strings.ReplaceAll(s.spec.Folder, "/", "-"), s.spec.Name+"-"+spec.Name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		for _, host := range s.hosts {
			system := l.ctx.Map.Get(*l.hostObject(l.ctx, host).ConfigManager.DatastoreSystem).(*simulator.HostDatastoreSystem)
			body := system.CreateLocalDatastore(l.ctx, &types.CreateLocalDatastore{This: system.Self, Name: spec.Name, Path: dir})
			if err := asError(body); err != nil {
				return fmt.Errorf("datastore %s: %w", spec.Name, err)
			}
		}
		store, ok := l.ctx.Map.FindByName(spec.Name, s.datacenter.Datastore).(*simulator.Datastore)
		if !ok {
			return fmt.Errorf("datastore %s has no host", spec.Name)
		}
		capacity := spec.CapacityGiB << 30
		if capacity == 0 {
			capacity = 4 << 40
		}
		store.Summary.Type = string(types.HostFileSystemVolumeFileSystemTypeVMFS)
		store.Summary.MultipleHostAccess = types.NewBool(true)
		store.Summary.Capacity, store.Summary.FreeSpace = capacity, capacity
		store.Info.GetDatastoreInfo().FreeSpace = capacity
		l.version.forget(&store.Datastore)
	}
	folder := l.ctx.Map.Get(s.datacenter.DatastoreFolder).(*simulator.Folder)
	for _, spec := range s.spec.DatastoreClusters {
		body := folder.CreateStoragePod(l.ctx, &types.CreateStoragePod{This: folder.Self, Name: spec.Name})
		if err := asError(body); err != nil {
			return fmt.Errorf("datastore cluster %s: %w", spec.Name, err)
		}
		pod := l.ctx.Map.Get(body.(*methods.CreateStoragePodBody).Res.Returnval).(*simulator.StoragePod)
		var members []types.ManagedObjectReference
		for _, name := range spec.Datastores {
			store := l.ctx.Map.FindByName(name, s.datacenter.Datastore)
			if store == nil {
				return fmt.Errorf("datastore cluster %s: no datastore %s", spec.Name, name)
			}
			members = append(members, store.Reference())
		}
		var refused *refusal
		l.ctx.WithLock(pod, func() {
			body := pod.MoveIntoFolderTask(l.ctx, &types.MoveIntoFolder_Task{This: pod.Self, List: members})
			_, refused = l.inner(l.ctx, body, func() types.ManagedObjectReference {
				return body.(*methods.MoveIntoFolder_TaskBody).Res.Returnval
			})
		})
		if refused != nil {
			return refused.asError()
		}
	}
	return nil
}

func (l *Lab) buildNetworks(s *site) error {
	for _, name := range s.spec.Networks {
		if l.ctx.Map.FindByName(name, s.datacenter.Network) != nil {
			continue
		}
		for _, host := range s.hosts {
			system := l.ctx.Map.Get(*l.hostObject(l.ctx, host).ConfigManager.NetworkSystem).(*simulator.HostNetworkSystem)
			body := system.AddPortGroup(l.ctx, &types.AddPortGroup{This: system.Self, Portgrp: types.HostPortGroupSpec{Name: name, VswitchName: "vSwitch0"}})
			if err := asError(body); err != nil {
				return fmt.Errorf("network %s: %w", name, err)
			}
			break
		}
		network := l.ctx.Map.FindByName(name, s.datacenter.Network)
		if network == nil {
			return fmt.Errorf("network %s has no host", name)
		}
		for _, cluster := range s.clusters {
			cluster.Network = append(cluster.Network, network.Reference())
		}
		for _, host := range s.hosts {
			object := l.hostObject(l.ctx, host)
			object.Network = append(object.Network[:len(object.Network):len(object.Network)], network.Reference())
		}
	}
	return nil
}

func (l *Lab) buildFolders(s *site) error {
	for _, path := range s.spec.Folders {
		parent, sofar := s.folders[""], ""
		for name := range strings.SplitSeq(path, "/") {
			sofar = strings.TrimPrefix(sofar+"/"+name, "/")
			if s.folders[sofar] == nil {
				body := parent.CreateFolder(l.ctx, &types.CreateFolder{This: parent.Self, Name: name})
				if err := asError(body); err != nil {
					return fmt.Errorf("folder %s: %w", path, err)
				}
				s.folders[sofar] = l.ctx.Map.Get(body.(*methods.CreateFolderBody).Res.Returnval).(*simulator.Folder)
			}
			parent = s.folders[sofar]
		}
	}
	return nil
}

// settleHosts comes last: VMs are created on hosts that are up, and hosts are
// added as a release that govmomi knows.
func (l *Lab) settleHosts(s *site) error {
	for _, cluster := range s.spec.Clusters {
		for _, spec := range cluster.Hosts {
			object := l.hostObject(l.ctx, s.hosts[spec.Name])
			product := &object.Config.Product
			product.Version, product.ApiVersion, product.Build = l.version.Product, l.version.API, l.version.Build
			product.FullName = fmt.Sprintf("VMware ESXi %s build-%s", l.version.Product, l.version.Build)
			object.Summary.Config.Product = product
			if spec.Maintenance {
				setRuntime(l.ctx, object, "inMaintenanceMode", true)
			}
			if spec.Connected != nil && !*spec.Connected {
				setRuntime(l.ctx, object, "connectionState", types.HostSystemConnectionStateDisconnected)
			}
		}
	}
	return nil
}
