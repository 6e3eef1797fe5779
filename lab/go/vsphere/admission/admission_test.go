package admission

import (
	"fmt"
	"strings"
	"testing"
)

func a40Profiles() map[string]Profile {
	profiles := map[string]Profile{}
	for gib, max := range map[int]int{1: 32, 2: 24, 4: 12, 8: 6, 12: 4, 16: 3, 24: 2, 48: 1} {
		for _, series := range []string{"c", "q"} {
			name := fmt.Sprintf("nvidia_a40-%d%s", gib, series)
			profiles[name] = Profile{Name: name, Board: "A40", Series: series, FramebufferMiB: gib * 1024, MaxPerGpu: max}
		}
	}
	return profiles
}

func a40(id string, mode Mode) *Gpu {
	return &Gpu{ID: id, FramebufferMiB: 48 * 1024, Mode: mode, Profiles: a40Profiles()}
}

func a100(id string) *Gpu {
	profiles := map[string]Profile{}
	for _, p := range []struct {
		suffix  string
		slices  int
		gib     int
		variant string
	}{{"1-5c", 1, 5, ""}, {"1-5cme", 1, 5, "ME"}, {"1-10c", 1, 10, ""}, {"2-10c", 2, 10, ""}, {"3-20c", 3, 20, ""}, {"4-20c", 4, 20, ""}, {"7-40c", 7, 40, ""}, {"10c", 0, 10, ""}} {
		name := "grid_a100-" + p.suffix
		profiles[name] = Profile{Name: name, FramebufferMiB: p.gib * 1024, MaxPerGpu: 7, MigSlices: p.slices, Variant: p.variant}
	}
	return &Gpu{ID: id, FramebufferMiB: 40 * 1024, Mode: Mig, MigSlices: 7, Profiles: profiles}
}

func fill(gpu *Gpu, name string) int {
	for n := 0; ; n++ {
		if Assign([]*Gpu{gpu}, fmt.Sprint(n), []string{name}, Performance, Rules{}) != nil {
			return n
		}
	}
}

func TestSameSizeTakesAsManyAsTheCatalogSays(t *testing.T) {
	for name, want := range map[string]int{"nvidia_a40-4q": 12, "nvidia_a40-16c": 3, "nvidia_a40-1q": 32} {
		if got := fill(a40("g", SameSize), name); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}

func TestMixedSizeTakesFewerOfSomeTypes(t *testing.T) {
	for name, want := range map[string]int{"nvidia_a40-4q": 8, "nvidia_a40-16c": 2, "nvidia_a40-24q": 2, "nvidia_a40-12q": 4} {
		if got := fill(a40("g", MixedSize), name); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}

func TestMigTakesWhatTheGuideSays(t *testing.T) {
	for suffix, want := range map[string]int{"1-5c": 7, "1-5cme": 1, "1-10c": 4, "2-10c": 3, "3-20c": 2, "4-20c": 1, "7-40c": 1} {
		if got := fill(a100("g"), "grid_a100-"+suffix); got != want {
			t.Errorf("%s: %d, want %d", suffix, got, want)
		}
	}
}

func TestMigLeavesRoomForLargeInstances(t *testing.T) {
	gpu := a100("g")
	for _, step := range []struct {
		suffix string
		start  int
	}{{"1-5c", 6}, {"2-10c", 4}, {"4-20c", 0}} {
		if refusal := Assign([]*Gpu{gpu}, step.suffix, []string{"grid_a100-" + step.suffix}, Performance, Rules{}); refusal != nil {
			t.Fatal(refusal)
		}
		if got := gpu.Slots[len(gpu.Slots)-1].Start; got != step.start {
			t.Errorf("%s: at %d, want %d", step.suffix, got, step.start)
		}
	}
	if Assign([]*Gpu{a100("g")}, "vm", []string{"grid_a100-4-20c", "grid_a100-4-20c"}, Performance, Rules{}) == nil {
		t.Error("two of 4-20c fit")
	}
}

func TestMigRefusesTimeSlicedProfiles(t *testing.T) {
	refusal := Assign([]*Gpu{a100("g")}, "vm", []string{"grid_a100-10c"}, Performance, Rules{})
	if refusal == nil || refusal.Unsupported != "grid_a100-10c" {
		t.Fatalf("got %v", refusal)
	}
}

func TestSameSizePinsTheGpu(t *testing.T) {
	gpu := a40("g", SameSize)
	for _, step := range []struct {
		profile string
		rules   Rules
		fits    bool
	}{
		{"nvidia_a40-8q", Rules{}, true},
		{"nvidia_a40-4q", Rules{}, false},
		{"nvidia_a40-8c", Rules{PinByType: true}, false},
		{"nvidia_a40-8c", Rules{}, true},
	} {
		refusal := Assign([]*Gpu{gpu}, step.profile, []string{step.profile}, Performance, step.rules)
		if (refusal == nil) != step.fits {
			t.Errorf("%s: %v", step.profile, refusal)
		}
		if refusal != nil && !strings.Contains(refusal.Error(), "pinned to") {
			t.Errorf("reason does not name the pin: %v", refusal)
		}
	}
}

func TestPolicyChoosesTheGpu(t *testing.T) {
	for policy, want := range map[Policy][2]int{Performance: {1, 1}, Consolidation: {2, 0}} {
		gpus := []*Gpu{a40("0", SameSize), a40("1", SameSize)}
		for _, vm := range []string{"a", "b"} {
			if refusal := Assign(gpus, vm, []string{"nvidia_a40-4q"}, policy, Rules{}); refusal != nil {
				t.Fatal(refusal)
			}
		}
		if got := [2]int{len(gpus[0].Slots), len(gpus[1].Slots)}; got != want {
			t.Errorf("%s: %v, want %v", policy, got, want)
		}
	}
}

func TestAssignmentStepsBackWhenAnEarlyChoicePinsTheWrongGpu(t *testing.T) {
	small, large := a40("small", SameSize), a40("large", SameSize)
	delete(small.Profiles, "nvidia_a40-16q")
	large.Slots = []Slot{}
	gpus := []*Gpu{large, small}
	refusal := Assign(gpus, "vm", []string{"nvidia_a40-8q", "nvidia_a40-16q"}, Performance, Rules{})
	if refusal != nil {
		t.Fatal(refusal)
	}
	if len(small.Slots) != 1 || len(large.Slots) != 1 {
		t.Fatalf("small %v, large %v", small.Slots, large.Slots)
	}
}

func TestAssignmentIsAllOrNothing(t *testing.T) {
	gpus := []*Gpu{a40("0", SameSize), a40("1", SameSize)}
	if Assign(gpus, "vm", []string{"nvidia_a40-48q", "nvidia_a40-48q", "nvidia_a40-48q"}, Performance, Rules{}) == nil {
		t.Fatal("three whole GPUs fit on two")
	}
	if len(gpus[0].Slots)+len(gpus[1].Slots) != 0 {
		t.Fatal("slots were left behind")
	}
}
