package main

import (
	"encoding/json"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"vgpu-fleet.example/lab/vsphere/admission"
)

// nvidiaVendor is the PCI vendor id of NVIDIA.
const nvidiaVendor = 0x10de

type Board struct {
	Name           string    `json:"-"`
	LongName       string    `json:"long_name"`
	FramebufferGiB int       `json:"framebuffer_gib"`
	DeviceID       string    `json:"device_id"`
	MigCapable     bool      `json:"mig_capable"`
	ProfileList    []profile `json:"profiles"`

	MigSlices int                          `json:"-"`
	Profiles  map[string]admission.Profile `json:"-"`
}

type profile struct {
	Name      string `json:"name"`
	Series    string `json:"series"`
	FbMiB     int    `json:"fb_mib"`
	MaxPerGpu int    `json:"max_per_gpu"`
	MigSlices int    `json:"mig_slices"`
	Variant   string `json:"variant"`
}

func loadBoards() (map[string]*Board, error) {
	boards := map[string]*Board{}
	if err := json.Unmarshal([]byte(boardsJSON), &boards); err != nil {
		return nil, fmt.Errorf("boards table: %w", err)
	}
	for name, board := range boards {
		board.Name = name
		board.Profiles = map[string]admission.Profile{}
		for _, p := range board.ProfileList {
			board.MigSlices = max(board.MigSlices, p.MigSlices)
			board.Profiles[p.Name] = admission.Profile{
				Name: p.Name, Board: name, Series: p.Series, FramebufferMiB: p.FbMiB,
				MaxPerGpu: p.MaxPerGpu, MigSlices: p.MigSlices, Variant: p.Variant,
			}
		}
	}
	return boards, nil
}

func findBoard(boards map[string]*Board, name string) (*Board, error) {
	if board, ok := boards[name]; ok {
		return board, nil
	}
	var known []string
	for candidate := range boards {
		known = append(known, candidate)
	}
	sort.Strings(known)
	return nil, fmt.Errorf("unknown board %q; known: %s", name, strings.Join(known, ", "))
}

// pciNumber reads "0x2235" or "2235", both hexadecimal.
func pciNumber(text string) (uint16, error) {
	value, err := strconv.ParseUint(strings.TrimPrefix(strings.ToLower(text), "0x"), 16, 16)
	if err != nil {
		return 0, fmt.Errorf("%q is not a hexadecimal PCI id", text)
	}
	return uint16(value), nil
}
