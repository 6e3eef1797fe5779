package main

import (
	"testing"

	"vgpu-fleet.example/lab/vsphere/admission"
)

func TestMmioFollowsTheBoardInLargeVMs(t *testing.T) {
	boards, err := loadBoards()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		board, profile string
		count          int
		memoryMB, want int
	}{
		{"A40", "nvidia_a40-8q", 1, 32*1024 - 1, 0},
		{"A40", "nvidia_a40-8q", 1, 32 * 1024, 128},
		{"A40", "nvidia_a40-8q", 2, 64 * 1024, 256},
		{"A40", "nvidia_a40-16q", 1, 16 * 1024, 32},
		{"A40", "nvidia_a40-4c", 1, 4 * 1024, 64},
		{"V100", "grid_v100-16q", 1, 64 * 1024, 64},
		{"A100D", "grid_a100d-20c", 1, 64 * 1024, 256},
		{"T4", "grid_t4-16c", 1, 64 * 1024, 0},
		{"A16", "nvidia_a16-8q", 1, 64 * 1024, 0},
	} {
		profile, known := boards[row.board].Profiles[row.profile]
		if !known {
			t.Fatalf("no profile %s", row.profile)
		}
		var profiles []admission.Profile
		for range row.count {
			profiles = append(profiles, profile)
		}
		if got := mmioGB(profiles, row.memoryMB); got != row.want {
			t.Errorf("%d x %s with %d MB: %d GB, want %d", row.count, row.profile, row.memoryMB, got, row.want)
		}
	}
	for name := range boardMmioGB {
		if boards[name] == nil {
			t.Errorf("%s is not a board", name)
		}
	}
}
