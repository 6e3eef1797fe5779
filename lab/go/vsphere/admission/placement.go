package admission

import "fmt"

// placeMixed halves the framebuffer until the next half would be too small, and
// places vGPUs only on the borders of those parts. So a 48 GB board takes two
// 16 GB vGPUs instead of three, as NVIDIA says of mixed-size mode: fewer of some
// types (vsphere.md 3.3). The exact placement table of the driver is unknown here.
func (g *Gpu) placeMixed(slot *Slot) error {
	part := g.FramebufferMiB
	for part%2 == 0 && part/2 >= slot.Profile.FramebufferMiB {
		part /= 2
	}
	for start := 0; start+part <= g.FramebufferMiB; start += part {
		if g.free(start, part) {
			slot.Start, slot.Size = start, part
			return nil
		}
	}
	return fmt.Errorf("no placement left for %s", slot.Profile.Name)
}

// placeMig follows the placements of the MIG guide: an instance starts at a
// multiple of its memory slices, and its compute slices must not run over the
// end. Boards with 7 compute slices have 8 memory slices. It takes the last free
// place, as lab/gpu/mig.py does: small instances leave room for large ones.
func (g *Gpu) placeMig(slot *Slot) error {
	profile := slot.Profile
	if profile.Variant == "ME" {
		for _, taken := range g.Slots {
			if taken.Profile.Variant == "ME" {
				return fmt.Errorf("the media engines are taken by %s", taken.Profile.Name)
			}
		}
	}
	memorySlices := g.MigSlices
	if memorySlices == 7 {
		memorySlices = 8
	}
	// Sizes are rounded in names: an eighth of 94 GB is called 12.
	size := max(1, (profile.FramebufferMiB*memorySlices+g.FramebufferMiB/2)/g.FramebufferMiB)
	last := min(memorySlices-size, g.MigSlices-profile.MigSlices)
	for start := last - last%size; start >= 0; start -= size {
		if g.free(start, size) {
			slot.Start, slot.Size = start, size
			return nil
		}
	}
	return fmt.Errorf("no placement left for %s", profile.Name)
}

func (g *Gpu) free(start, size int) bool {
	for _, slot := range g.Slots {
		if start < slot.Start+slot.Size && slot.Start < start+size {
			return false
		}
	}
	return true
}
