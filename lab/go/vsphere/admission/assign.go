package admission

import (
	"fmt"
	"sort"
	"strings"
)

// Policy is the host's choice among GPUs with room.
type Policy string

const (
	// Performance takes the GPU with the fewest machines.
	Performance Policy = "performance"
	// Consolidation fills the fullest GPU first.
	Consolidation Policy = "consolidation"
)

// Refusal says why a host cannot run the vGPUs of a machine.
type Refusal struct {
	// Unsupported: no GPU of the host offers the profile at all.
	Unsupported string
	// Reasons has one sentence per GPU that offers the profile.
	Reasons []string
}

func (r *Refusal) Error() string {
	if r.Unsupported != "" {
		return fmt.Sprintf("no GPU offers %s", r.Unsupported)
	}
	return strings.Join(r.Reasons, "; ")
}

// Assign books one slot per wanted profile for the holder, all or none.
func Assign(gpus []*Gpu, holder string, wanted []string, policy Policy, rules Rules) *Refusal {
	for _, name := range wanted {
		if !anyOffers(gpus, name) {
			return &Refusal{Unsupported: name}
		}
	}
	if assignFrom(gpus, holder, wanted, policy, rules) {
		return nil
	}
	refusal := &Refusal{}
	for _, gpu := range gpus {
		for _, name := range distinct(wanted) {
			profile, offered := gpu.Offers(name)
			if !offered {
				continue
			}
			if _, err := gpu.room(profile, rules); err != nil {
				refusal.Reasons = append(refusal.Reasons, fmt.Sprintf("GPU %s: %s", gpu.ID, err))
			} else {
				refusal.Reasons = append(refusal.Reasons,
					fmt.Sprintf("GPU %s: not enough room for all %d vGPUs", gpu.ID, len(wanted)))
			}
		}
	}
	return refusal
}

// assignFrom tries the GPUs in the order of the policy and steps back when a
// later vGPU finds no room, since an early choice can pin the wrong GPU.
func assignFrom(gpus []*Gpu, holder string, wanted []string, policy Policy, rules Rules) bool {
	if len(wanted) == 0 {
		return true
	}
	failed := map[string]bool{}
	for _, gpu := range inOrder(gpus, policy) {
		profile, offered := gpu.Offers(wanted[0])
		if !offered || failed[gpu.likeness()] {
			continue
		}
		slot, err := gpu.room(profile, rules)
		if err != nil {
			continue
		}
		slot.Holder = holder
		gpu.Slots = append(gpu.Slots, slot)
		if assignFrom(gpus, holder, wanted[1:], policy, rules) {
			return true
		}
		gpu.Slots = gpu.Slots[:len(gpu.Slots)-1]
		failed[gpu.likeness()] = true
	}
	return false
}

// likeness is equal for GPUs that would answer alike, so that a host full of
// equal GPUs is not searched once per permutation.
func (g *Gpu) likeness() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s %d", g.FramebufferMiB, g.Mode, len(g.Profiles))
	for _, slot := range g.Slots {
		fmt.Fprintf(&b, " %s@%d", slot.Profile.Name, slot.Start)
	}
	return b.String()
}

// Take books one slot of a profile on this GPU, if there is room.
func (g *Gpu) Take(holder, name string, rules Rules) bool {
	profile, offered := g.Offers(name)
	if !offered {
		return false
	}
	slot, err := g.room(profile, rules)
	if err != nil || g.Mode == SameSize && len(g.Slots) >= profile.MaxPerGpu {
		return false
	}
	slot.Holder = holder
	g.Slots = append(g.Slots, slot)
	return true
}

func inOrder(gpus []*Gpu, policy Policy) []*Gpu {
	ordered := append([]*Gpu(nil), gpus...)
	sort.SliceStable(ordered, func(a, b int) bool {
		if policy == Consolidation {
			return len(ordered[a].Slots) > len(ordered[b].Slots)
		}
		if x, y := ordered[a].Holders(), ordered[b].Holders(); x != y {
			return x < y
		}
		return len(ordered[a].Slots) < len(ordered[b].Slots)
	})
	return ordered
}

func anyOffers(gpus []*Gpu, name string) bool {
	for _, gpu := range gpus {
		if _, offered := gpu.Offers(name); offered {
			return true
		}
	}
	return false
}

func distinct(names []string) []string {
	var out []string
	seen := map[string]bool{}
	for _, name := range names {
		if !seen[name] {
			seen[name] = true
			out = append(out, name)
		}
	}
	return out
}
