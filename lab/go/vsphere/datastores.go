package main

import (
	"fmt"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// setFreeSpace makes datastores as full as a test wants them, by name, in bytes.
func (l *Lab) setFreeSpace(free map[string]int64) error {
	found := map[string]bool{}
	for _, entity := range l.ctx.Map.All("Datastore") {
		store, ok := entity.(*simulator.Datastore)
		if !ok {
			continue
		}
		bytes, wanted := free[store.Name]
		if !wanted {
			continue
		}
		found[store.Name] = true
		l.ctx.WithLock(store, func() {
			store.Summary.FreeSpace = bytes
			store.Info.GetDatastoreInfo().FreeSpace = bytes
		})
	}
	for name := range free {
		if !found[name] {
			return fmt.Errorf("there is no datastore %q", name)
		}
	}
	return nil
}

// checkSpace: a full clone needs room for the disks of its source.
func (l *Lab) checkSpace(ctx *simulator.Context, source *simulator.VirtualMachine, req *types.CloneVM_Task) *refusal {
	target := req.Spec.Location.Datastore
	if target == nil && len(source.Datastore) > 0 {
		target = &source.Datastore[0]
	}
	if target == nil || linked(req) {
		return nil
	}
	store, ok := ctx.Map.Get(*target).(*simulator.Datastore)
	if !ok {
		return nil
	}
	var needed int64 = 1
	for _, device := range source.Config.Hardware.Device {
		if disk, ok := device.(*types.VirtualDisk); ok {
			needed += disk.CapacityInKB << 10
		}
	}
	if store.Summary.FreeSpace >= needed {
		return nil
	}
	return refuse(&types.NoDiskSpace{FileFault: types.FileFault{File: "[" + store.Name + "]"}, Datastore: store.Name}, "Insufficient disk space on datastore '%s'.", store.Name)
}
