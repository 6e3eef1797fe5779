package main

import (
	"encoding/json"
	"fmt"
	"os"
)

// Inventory is the world the simulator starts with. The Python side makes it
// from the `vsphere:` section of a scenario; docs/lab-vsphere.md describes it.
type Inventory struct {
	MaxVgpusPerVM int              `json:"max_vgpus_per_vm"`
	HotMigrate    *bool            `json:"hot_migrate"`
	Users         []UserSpec       `json:"users"`
	Datacenters   []DatacenterSpec `json:"datacenters"`
}

// UserSpec is somebody who may do less than the administrator.
type UserSpec struct {
	Name       string   `json:"name"`
	Privileges []string `json:"privileges"`
}

type DatacenterSpec struct {
	Name string `json:"name"`
	// The path of the folder below the root folder that the datacenter is in.
	Folder            string                 `json:"folder"`
	Clusters          []ClusterSpec          `json:"clusters"`
	Datastores        []DatastoreSpec        `json:"datastores"`
	DatastoreClusters []DatastoreClusterSpec `json:"datastore_clusters"`
	Networks          []string               `json:"networks"`
	Folders           []string               `json:"folders"`
	Templates         []MachineSpec          `json:"templates"`
	VMs               []MachineSpec          `json:"vms"`
}

type ClusterSpec struct {
	Name          string            `json:"name"`
	DRS           string            `json:"drs"`
	DRSOptions    map[string]string `json:"drs_options"`
	ResourcePools []string          `json:"resource_pools"`
	Hosts         []HostSpec        `json:"hosts"`
}

type DatastoreSpec struct {
	Name        string `json:"name"`
	CapacityGiB int64  `json:"capacity_gib"`
}

type DatastoreClusterSpec struct {
	Name       string   `json:"name"`
	Datastores []string `json:"datastores"`
}

type HostSpec struct {
	Name             string          `json:"name"`
	MemoryGiB        int64           `json:"memory_gib"`
	CPUCores         int16           `json:"cpu_cores"`
	GraphicsType     string          `json:"graphics_type"`
	AssignmentPolicy string          `json:"assignment_policy"`
	Driver           *bool           `json:"driver"`
	Maintenance      bool            `json:"maintenance"`
	Connected        *bool           `json:"connected"`
	Gpus             []GpuSpec       `json:"gpus"`
	PciDevices       []PciDeviceSpec `json:"pci_devices"`
	Rebinds          *bool           `json:"passthrough_without_reboot"`
	// Sets of connected devices that VMs get as a whole.
	DeviceGroups []DeviceGroupSpec `json:"device_groups"`
}

// DeviceGroupSpec is one set of devices that NVLink or a PCIe switch connects.
type DeviceGroupSpec struct {
	Name        string            `json:"name"`
	Description string            `json:"description"`
	Devices     []GroupMemberSpec `json:"devices"`
}

// GroupMemberSpec is a vGPU of a GPU if it has a profile, otherwise the whole device.
type GroupMemberSpec struct {
	Address string `json:"address"`
	Profile string `json:"profile"`
}

type GpuSpec struct {
	Board        string `json:"board"`
	Address      string `json:"address"`
	DeviceID     string `json:"device_id"`
	GraphicsType string `json:"graphics_type"`
	Mode         string `json:"mode"`
}

// PciDeviceSpec is a device that the host can give away whole (DirectPath I/O).
type PciDeviceSpec struct {
	Address    string `json:"address"`
	VendorID   string `json:"vendor_id"`
	DeviceID   string `json:"device_id"`
	VendorName string `json:"vendor_name"`
	DeviceName string `json:"device_name"`
	Label      string `json:"label"`
	// The device that goes along, such as a bridge; itself if empty.
	Dependent   string `json:"dependent"`
	Passthrough *bool  `json:"passthrough"`
	Capable     *bool  `json:"capable"`
}

type MachineSpec struct {
	Name            string            `json:"name"`
	Folder          string            `json:"folder"`
	Cluster         string            `json:"cluster"`
	Host            string            `json:"host"`
	ResourcePool    string            `json:"resource_pool"`
	Datastore       string            `json:"datastore"`
	Networks        []string          `json:"networks"`
	HardwareVersion int               `json:"hardware_version"`
	Firmware        string            `json:"firmware"`
	CPUs            int32             `json:"cpus"`
	MemoryMB        int64             `json:"memory_mb"`
	DiskGB          int64             `json:"disk_gb"`
	GuestID         string            `json:"guest_id"`
	Annotation      string            `json:"annotation"`
	ExtraConfig     map[string]string `json:"extra_config"`
	Vgpus           []string          `json:"vgpus"`
	MemoryLocked    bool              `json:"memory_locked"`
	Power           string            `json:"power"`
	Tools           string            `json:"tools"`
	IgnoresShutdown bool              `json:"ignores_shutdown"`
	Snapshot        string            `json:"snapshot"`
	Vsga            bool              `json:"vsga"`
	DRS             string            `json:"drs"`
}

func readInventory(path string) (*Inventory, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	inventory := &Inventory{}
	if err := json.Unmarshal(data, inventory); err != nil {
		return nil, fmt.Errorf("inventory %s: %w", path, err)
	}
	if len(inventory.Datacenters) == 0 {
		return nil, fmt.Errorf("inventory %s has no datacenter", path)
	}
	return inventory, nil
}
