package admission

import "fmt"

// placeMixed takes the first placement id of the vGPU's size that leaves its whole
// size free (nvidia.md 2.3). Which of several free ids the driver takes is unknown.
func (g *Gpu) placeMixed(slot *Slot) error {
	size := slot.Profile.FramebufferMiB / 1024
	starts, known := placementIDs[placementKinds[slot.Profile.Board]][size]
	if !known {
		return fmt.Errorf("%s does not support vGPUs of different sizes", slot.Profile.Board)
	}
	if len(g.Slots) >= maxVgpusPerGpu {
		return fmt.Errorf("all %d places are taken", maxVgpusPerGpu)
	}
	for _, start := range starts {
		if g.free(start, size) {
			slot.Start, slot.Size = start, size
			return nil
		}
	}
	return fmt.Errorf("no placement left for %s", slot.Profile.Name)
}

// maxVgpusPerGpu is the driver's limit for GPUs that are not in MIG mode.
const maxVgpusPerGpu = 32

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
