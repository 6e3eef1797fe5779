package main

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// Version is what the lab needs to know of a vSphere release.
type Version struct {
	API     string
	Product string
	Build   string
	// Like is the release of the same hardware version that govmomi knows.
	Like            string
	Prior           []string
	MaxHardware     int
	MinVgpuHardware int
	MaxVgpusPerVM   int
	// PinByType: same-size mode compares types, not sizes, before 8.0 U2.
	PinByType bool
}

var versions = map[string]Version{
	"8.0.3": {
		API: "8.0.3.0", Product: "8.0.3", Build: "24022515", Like: "8.0.2",
		Prior:       []string{"8.0.2.0", "8.0.1.0", "8.0.0.0", "7.0.3.0", "7.0.2.0", "7.0", "6.7", "6.5", "6.0", "5.5"},
		MaxHardware: 21, MinVgpuHardware: 17, MaxVgpusPerVM: 8,
	},
	"9.1": {
		API: "9.1.0.0", Product: "9.1.0", Build: "25100000", Like: "8.0.2",
		Prior:       []string{"9.0.0.0", "8.0.3.0", "8.0.2.0", "8.0.1.0", "8.0.0.0", "7.0.3.0", "7.0.2.0", "7.0", "6.7", "6.5", "6.0", "5.5"},
		MaxHardware: 21, MinVgpuHardware: 17, MaxVgpusPerVM: 16,
	},
	"9.0": {
		API: "9.0.0.0", Product: "9.0.0", Build: "24755229", Like: "8.0.2",
		Prior:       []string{"8.0.3.0", "8.0.2.0", "8.0.1.0", "8.0.0.0", "7.0.3.0", "7.0.2.0", "7.0", "6.7", "6.5", "6.0", "5.5"},
		MaxHardware: 21, MinVgpuHardware: 17, MaxVgpusPerVM: 16,
	},
	"7.0.3": {
		API: "7.0.3.0", Product: "7.0.3", Build: "19234570", Like: "7.0.2",
		Prior:       []string{"7.0.2.0", "7.0.1.0", "7.0", "6.7", "6.5", "6.0", "5.5"},
		MaxHardware: 19, MinVgpuHardware: 17, MaxVgpusPerVM: 4, PinByType: true,
	},
	"6.7": {
		API: "6.7", Product: "6.7.0", Build: "14368073", Like: "6.7",
		Prior:       []string{"6.5", "6.0", "5.5"},
		MaxHardware: 14, MinVgpuHardware: 11, MaxVgpusPerVM: 4, PinByType: true,
	},
}

func findVersion(name string) (Version, error) {
	version, ok := versions[name]
	if !ok {
		return version, fmt.Errorf("unknown API version %q; known: 9.1, 9.0, 8.0.3, 7.0.3, 6.7", name)
	}
	return version, nil
}

// has says whether the release knows what came with the given API version.
func (v Version) has(since string) bool {
	have, want := versionNumbers(v.API), versionNumbers(since)
	for i := range want {
		if i >= len(have) {
			return want[i] == 0
		}
		if have[i] != want[i] {
			return have[i] > want[i]
		}
	}
	return true
}

func versionNumbers(text string) []int {
	var numbers []int
	for part := range strings.SplitSeq(text, ".") {
		number, _ := strconv.Atoi(part)
		numbers = append(numbers, number)
	}
	return numbers
}

// forget clears every field that is newer than the release. pyVmomi dies on
// fields its negotiated version does not know (vsphere.md 10.1).
func (v Version) forget(value any) {
	v.forgetIn(reflect.ValueOf(value))
}

func (v Version) forgetIn(value reflect.Value) {
	switch value.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !value.IsNil() {
			v.forgetIn(value.Elem())
		}
	case reflect.Slice:
		for i := range value.Len() {
			v.forgetIn(value.Index(i))
		}
	case reflect.Struct:
		for i := range value.NumField() {
			field, kind := value.Field(i), value.Type().Field(i)
			if !kind.IsExported() {
				continue
			}
			if since := kind.Tag.Get("vim"); since != "" && field.CanSet() && !v.has(since) {
				field.SetZero()
				continue
			}
			v.forgetIn(field)
		}
	}
}
