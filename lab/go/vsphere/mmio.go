package main

import (
	"strconv"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"vgpu-fleet.example/lab/vsphere/admission"
)

// boardMmioGB is NVIDIA's list of GPUs that require 64 GB of MMIO space or more
// (vsphere.md 4.4), by board instead of by profile. GPUs that are not in the list
// work with the default region of a VM.
var boardMmioGB = map[string]int{
	"V100": 64, "V100X": 64, "V100L": 64, "V100D": 64, "V100DX": 64, "V100S": 64,
	"A10": 64, "A30": 64, "RTXA5000": 64, "L4": 64,
	"A40": 128, "A100": 128, "A100X": 128, "L40": 128,
	"A100D": 256, "A100DX": 256, "H100": 256, "H100XM": 256,
	"H200": 512, "H200X": 512,
}

const (
	largeVMMB     = 32 * 1024
	computeMmioGB = 64
)

// checkMmio applies the rules for EFI and MMIO. The smallest region that a real
// host accepts is unknown, so each rule counts with its documented size.
func (l *Lab) checkMmio(vm *simulator.VirtualMachine, vgpus []string) *refusal {
	var profiles []admission.Profile
	for _, name := range vgpus {
		profile, _ := l.profile(name)
		profiles = append(profiles, profile)
	}
	need := mmioGB(profiles, int(vm.Config.Hardware.MemoryMB))
	if need == 0 {
		return nil
	}
	if vm.Config.Firmware != string(types.GuestOsDescriptorFirmwareTypeEfi) {
		return startFailure("Module 'DevicePowerOn' power on failed. Virtual machine %s needs EFI firmware for its PCI passthrough devices.", vm.Name)
	}
	enabled, size := mmioSettings(vm.Config.ExtraConfig)
	if !enabled || size < need {
		return startFailure("Module 'DevicePowerOn' power on failed. Virtual machine %s needs 64-bit MMIO of %d GB for its PCI passthrough devices.", vm.Name, need)
	}
	return nil
}

func mmioGB(profiles []admission.Profile, memoryMB int) int {
	framebuffers, boards, compute := 0, 0, 0
	for _, profile := range profiles {
		if profile.Board == "T4" {
			continue
		}
		// The vendor's article on large regions: the framebuffers together, rounded
		// up to a power of two, and doubled.
		if profile.FramebufferMiB >= 16*1024 {
			framebuffers += profile.FramebufferMiB / 1024
		}
		boards += boardMmioGB[profile.Board]
		if profile.Series == "C" {
			compute = computeMmioGB
		}
	}
	need := compute
	if framebuffers > 0 {
		size := 1
		for size < framebuffers {
			size *= 2
		}
		need = max(need, size*2)
	}
	if memoryMB >= largeVMMB {
		need = max(need, boards)
	}
	return need
}

func mmioSettings(options []types.BaseOptionValue) (enabled bool, sizeGB int) {
	for _, option := range options {
		value := option.GetOptionValue()
		text, _ := value.Value.(string)
		switch value.Key {
		case "pciPassthru.use64bitMMIO":
			enabled = strings.EqualFold(text, "true")
		case "pciPassthru.64bitMMIOSizeGB":
			sizeGB, _ = strconv.Atoi(text)
		}
	}
	return enabled, sizeGB
}
