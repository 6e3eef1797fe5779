package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/vmware/govmomi/vim25/types"
)

// faultRule makes a method fail on demand.
type faultRule struct {
	Method  string          `json:"method"`
	Object  string          `json:"object,omitempty"`
	Fault   string          `json:"fault"`
	Fields  json.RawMessage `json:"fields,omitempty"`
	Message string          `json:"message,omitempty"`
	As      string          `json:"as,omitempty"`
	Count   int             `json:"count,omitempty"`
}

type faultRules struct {
	mu    sync.Mutex
	rules []*faultRule
}

func (f *faultRules) set(rules []*faultRule) error {
	for _, rule := range rules {
		if rule.As == "" {
			rule.As = "task"
		}
		if rule.Method == "" || rule.As != "task" && rule.As != "soap" {
			return fmt.Errorf("a fault rule needs a method, and as is task or soap")
		}
		if _, err := rule.build(); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = rules
	return nil
}

func (f *faultRules) get() []faultRule {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := []faultRule{}
	for _, rule := range f.rules {
		out = append(out, *rule)
	}
	return out
}

// match finds the rule for a call and uses it up.
func (f *faultRules) match(method string, object types.ManagedObjectReference, name string) *faultRule {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, rule := range f.rules {
		if rule.Method != method || rule.Object != "" && rule.Object != object.Value && rule.Object != name {
			continue
		}
		hit := *rule
		if rule.Count > 0 {
			if rule.Count--; rule.Count == 0 {
				f.rules = append(f.rules[:i:i], f.rules[i+1:]...)
			}
		}
		return &hit
	}
	return nil
}

func (r *faultRule) build() (types.BaseMethodFault, error) {
	kind, ok := types.TypeFunc()(r.Fault)
	if !ok {
		return nil, fmt.Errorf("unknown fault %q", r.Fault)
	}
	value := reflect.New(kind)
	if len(r.Fields) > 0 {
		// This decoder knows faults inside of faults, by their `_typeName`.
		if err := types.NewJSONDecoder(bytes.NewReader(r.Fields)).Decode(value.Interface()); err != nil {
			return nil, fmt.Errorf("fields of %s: %w", r.Fault, err)
		}
	}
	fault, ok := value.Interface().(types.BaseMethodFault)
	if !ok {
		return nil, fmt.Errorf("%q is not a fault", r.Fault)
	}
	return fault, nil
}

func (r *faultRule) refusal() *refusal {
	fault, _ := r.build()
	text := r.Message
	if text == "" {
		text = defaultText(r.Fault)
	}
	return &refusal{fault, text}
}

// behaviour switches what is unknown of real servers, or rare.
type behaviour struct {
	mu     sync.Mutex
	values behaviourValues
}

type behaviourValues struct {
	Refusals      string `json:"refusals"`
	HotAddFault   string `json:"hot_add_fault"`
	GuestShutdown string `json:"guest_shutdown"`
	// Whether a power-on through DRS returns the task of each VM. The API
	// reference promises one only for VMs that DRS does not manage.
	DrsTask string `json:"drs_task"`
	// When graphicsInfo lists a VM that started: at once, after
	// GraphicsDelayMS, only after RefreshGraphicsManager, or not at all.
	GraphicsInfo    string `json:"graphics_info"`
	GraphicsDelayMS int    `json:"graphics_delay_ms"`
	// What a restart of Xorg does: work, fail while the settings come into force
	// without it, fail and leave them to a reboot, or work and leave them to it.
	Xorg string `json:"xorg"`
	// How far the capacity of DirectPathProfileManager is off the lab's own books.
	CapacitySkew int `json:"capacity_skew"`
	// What deviceGroups of a ConfigSpec means: the list of all groups that the VM
	// is to have, or only what is added, while groups go with their devices. The
	// API reference leaves both open.
	DeviceGroups string `json:"device_groups"`
}

// The first choice is the default.
var behaviourChoices = map[string][]string{
	"refusals":       {"task", "soap"},
	"hot_add_fault":  {"InvalidPowerState", "DeviceHotPlugNotSupported"},
	"guest_shutdown": {"works", "hangs"},
	"drs_task":       {"omitted", "returned"},
	"graphics_info":  {"live", "delayed", "on_refresh", "never"},
	"device_groups":  {"listed", "by_devices"},
	"xorg":           {"starts", "fails", "fails_until_reboot", "starts_and_waits_for_reboot"},
}

func (v *behaviourValues) fields() map[string]*string {
	return map[string]*string{
		"refusals": &v.Refusals, "hot_add_fault": &v.HotAddFault, "guest_shutdown": &v.GuestShutdown,
		"drs_task": &v.DrsTask, "graphics_info": &v.GraphicsInfo, "xorg": &v.Xorg,
		"device_groups": &v.DeviceGroups,
	}
}

func (b *behaviour) get() behaviourValues {
	b.mu.Lock()
	defer b.mu.Unlock()
	values := b.values
	for name, value := range values.fields() {
		if *value == "" {
			*value = behaviourChoices[name][0]
		}
	}
	return values
}

func (b *behaviour) set(values behaviourValues) error {
	for name, value := range values.fields() {
		if *value != "" && !slices.Contains(behaviourChoices[name], *value) {
			return fmt.Errorf("%s is one of %v", name, behaviourChoices[name])
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.values = values
	return nil
}
