// Package admission decides whether a vGPU fits on a physical GPU, and where.
// It knows neither vSphere nor the simulator.
package admission

import "fmt"

// Mode is how a GPU is divided among its vGPUs.
type Mode string

const (
	SameSize  Mode = "same_size"
	MixedSize Mode = "mixed_size"
	Mig       Mode = "mig"
)

// Profile is one vGPU type of one board.
type Profile struct {
	Name           string
	Board          string
	Series         string
	FramebufferMiB int
	MaxPerGpu      int
	MigSlices      int
	Variant        string
}

// Slot is the room one running vGPU takes on a GPU. Start and Size count
// framebuffer GiB in mixed-size mode and memory slices in MIG mode.
type Slot struct {
	Holder  string
	Profile Profile
	Start   int
	Size    int
}

// Gpu is one physical GPU with what runs on it.
type Gpu struct {
	ID             string
	FramebufferMiB int
	Mode           Mode
	MigSlices      int
	Profiles       map[string]Profile
	Slots          []Slot
}

// Offers says whether the GPU can carry the profile in its present mode.
func (g *Gpu) Offers(name string) (Profile, bool) {
	profile, known := g.Profiles[name]
	return profile, known && (profile.MigSlices > 0) == (g.Mode == Mig)
}

// Holders counts the machines on the GPU, not their vGPUs.
func (g *Gpu) Holders() int {
	seen := map[string]bool{}
	for _, slot := range g.Slots {
		seen[slot.Holder] = true
	}
	return len(seen)
}

// Release frees all slots of a holder and tells whether there were any.
func (g *Gpu) Release(holder string) bool {
	kept := g.Slots[:0]
	for _, slot := range g.Slots {
		if slot.Holder != holder {
			kept = append(kept, slot)
		}
	}
	released := len(kept) != len(g.Slots)
	g.Slots = kept
	return released
}

// Rules are what differs between vSphere versions.
type Rules struct {
	// PinByType: before 8.0 U2 a GPU takes one exact type at a time, since
	// then all types of one framebuffer size (vsphere.md 3.2).
	PinByType bool
}

// Capacity counts how many more vGPUs of a profile fit beside these slots.
func (g *Gpu) Capacity(profile Profile, rules Rules, beside []Slot) int {
	trial := *g
	trial.Slots = append([]Slot(nil), beside...)
	count := 0
	for {
		slot, err := trial.room(profile, rules)
		if err != nil || trial.Mode == SameSize && len(trial.Slots) >= profile.MaxPerGpu {
			return count
		}
		trial.Slots = append(trial.Slots, slot)
		count++
	}
}

// room finds a place for one more vGPU, or says why there is none.
func (g *Gpu) room(profile Profile, rules Rules) (Slot, error) {
	slot := Slot{Profile: profile}
	switch g.Mode {
	case MixedSize:
		return slot, g.placeMixed(&slot)
	case Mig:
		return slot, g.placeMig(&slot)
	}
	if len(g.Slots) == 0 {
		return slot, nil
	}
	pinned := g.Slots[0].Profile
	if rules.PinByType && pinned.Name != profile.Name {
		return slot, fmt.Errorf("pinned to %s", pinned.Name)
	}
	if pinned.FramebufferMiB != profile.FramebufferMiB {
		return slot, fmt.Errorf("pinned to the size of %s", pinned.Name)
	}
	if len(g.Slots) >= profile.MaxPerGpu {
		return slot, fmt.Errorf("all %d slots of %s are taken", profile.MaxPerGpu, profile.Name)
	}
	return slot, nil
}
