package main

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// refusal is a fault with the sentence a person reads.
type refusal struct {
	fault types.BaseMethodFault
	text  string
}

func refuse(fault types.BaseMethodFault, format string, args ...any) *refusal {
	return &refusal{fault: fault, text: fmt.Sprintf(format, args...)}
}

// refusedBy turns a fault of govmomi into a refusal with words: govmomi itself
// says only the name of its Go type (vsphere.md 8.1).
func refusedBy(fault types.BaseMethodFault) *refusal {
	if fault == nil {
		return nil
	}
	fault = wireFault(fault)
	method := fault.GetMethodFault()
	if method.FaultCause != nil && method.FaultCause.LocalizedMessage != "" {
		return &refusal{fault, method.FaultCause.LocalizedMessage}
	}
	return &refusal{fault, defaultText(faultName(fault))}
}

// wireFault replaces the "...Fault" aliases, which no client can decode (vsphere.md
// 8.3: KeyError 'InvalidPowerStateFault'), by the type they stand for.
func wireFault(fault types.BaseMethodFault) types.BaseMethodFault {
	name := faultName(fault)
	if !strings.HasSuffix(name, "Fault") {
		return fault
	}
	kind, known := types.TypeFunc()(strings.TrimSuffix(name, "Fault"))
	value := reflect.ValueOf(fault).Elem()
	if !known || !value.CanConvert(kind) {
		return fault
	}
	plain := reflect.New(kind)
	plain.Elem().Set(value.Convert(kind))
	if converted, ok := plain.Interface().(types.BaseMethodFault); ok {
		return converted
	}
	return fault
}

func faultName(fault types.BaseMethodFault) string {
	return reflect.TypeOf(fault).Elem().Name()
}

// localized is the form of a fault inside tasks and results. The sentence stands
// in both places where clients look for it.
func (r *refusal) localized() types.LocalizedMethodFault {
	method := r.fault.GetMethodFault()
	if len(method.FaultMessage) == 0 {
		method.FaultMessage = []types.LocalizableMessage{{Key: "vgpu.lab." + faultName(r.fault), Message: r.text}}
	}
	return types.LocalizedMethodFault{Fault: r.fault, LocalizedMessage: r.text}
}

// soapRefusal is a method's answer when the fault arrives at once, without a task.
type soapRefusal struct{ fault *soap.Fault }

func (s *soapRefusal) Fault() *soap.Fault { return s.fault }

func (r *refusal) soap() soap.HasFault {
	localized := r.localized()
	return &soapRefusal{simulator.Fault(r.text, localized.Fault)}
}

var faultTexts = map[string]string{
	"ConcurrentAccess":                   "The operation could not be completed because the object was changed meanwhile.",
	"DuplicateName":                      "The name already exists.",
	"HostNotConnected":                   "The host is not connected.",
	"InsufficientGraphicsResourcesFault": "Graphics resources admission control failed.",
	"InvalidArgument":                    "A specified parameter was not correct.",
	"InvalidLogin":                       "Cannot complete login due to an incorrect user name or password.",
	"InvalidPowerState":                  "The attempted operation cannot be performed in the current power state.",
	"InvalidState":                       "The operation is not allowed in the current state.",
	"ManagedObjectNotFound":              "The object has already been deleted or has not been completely created.",
	"NoPermission":                       "Permission to perform this operation was denied.",
	"NotAuthenticated":                   "The session is not authenticated.",
	"NotSupported":                       "The operation is not supported on the object.",
	"TaskInProgress":                     "Another task is already in progress.",
	"ToolsUnavailable":                   "VMware Tools is not running in this virtual machine.",
}

func defaultText(name string) string {
	if text, ok := faultTexts[name]; ok {
		return text
	}
	return "The operation failed: " + name + "."
}
