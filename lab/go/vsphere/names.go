package main

import (
	"regexp"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

var (
	// A percent sign that starts an escape sequence stays as it is.
	special = regexp.MustCompile(`(?i)%(25|2f|5c)|[%/\\]`)
	escaped = map[string]string{"%": "%25", "/": "%2f", `\`: "%5c"}
)

// storedName is how vCenter keeps the name of an entity: percent, slash and backslash are escaped.
func storedName(name string) string {
	return special.ReplaceAllStringFunc(name, func(found string) string {
		if stored, ok := escaped[found]; ok {
			return stored
		}
		return found
	})
}

// plainName is a name that govmomi leaves alone: it loses the devices of a VM whose name it escapes.
func plainName(name string) string {
	return strings.Map(func(c rune) rune {
		if strings.ContainsRune(`%/\`, c) {
			return '_'
		}
		return c
	}, name)
}

// rename gives a VM that was made with its plain name the stored form of its name.
func rename(ctx *simulator.Context, vm *simulator.VirtualMachine, name string) {
	stored := storedName(name)
	if vm.Name == stored {
		return
	}
	ctx.Update(vm, []types.PropertyChange{
		{Name: "name", Val: stored}, {Name: "config.name", Val: stored}, {Name: "summary.config.name", Val: stored},
	})
}
