package main

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// controlHandler is the switchboard for tests; docs/lab-vsphere.md lists it.
func (l *Lab) controlHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /rpc", func(w http.ResponseWriter, _ *http.Request) { reply(w, l.rpcs.read(false)) })
	mux.HandleFunc("DELETE /rpc", func(w http.ResponseWriter, _ *http.Request) { reply(w, l.rpcs.read(true)) })
	mux.HandleFunc("GET /tasks", func(w http.ResponseWriter, _ *http.Request) { reply(w, l.tasks.get()) })
	mux.HandleFunc("PUT /tasks", func(w http.ResponseWriter, r *http.Request) {
		var p pace
		accept(w, r, &p, func() error { l.tasks.set(p); return nil })
	})
	mux.HandleFunc("DELETE /sessions", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, map[string]int{"expired": l.expireSessions()})
	})
	mux.HandleFunc("PUT /sessions", func(w http.ResponseWriter, r *http.Request) {
		var wish struct {
			ExpireAfterCalls int64 `json:"expire_after_calls"`
		}
		accept(w, r, &wish, func() error {
			l.rpcs.expireIn(wish.ExpireAfterCalls)
			if wish.ExpireAfterCalls == 1 {
				l.expireSessions()
			}
			return nil
		})
	})
	mux.HandleFunc("GET /faults", func(w http.ResponseWriter, _ *http.Request) { reply(w, l.faults.get()) })
	mux.HandleFunc("PUT /faults", func(w http.ResponseWriter, r *http.Request) {
		var rules []*faultRule
		accept(w, r, &rules, func() error { return l.faults.set(rules) })
	})
	mux.HandleFunc("GET /behaviour", func(w http.ResponseWriter, _ *http.Request) { reply(w, l.conduct.get()) })
	mux.HandleFunc("PUT /behaviour", func(w http.ResponseWriter, r *http.Request) {
		var values behaviourValues
		accept(w, r, &values, func() error { return l.conduct.set(values) })
	})
	mux.HandleFunc("GET /hold", func(w http.ResponseWriter, _ *http.Request) { reply(w, l.holds.report()) })
	mux.HandleFunc("PUT /hold", func(w http.ResponseWriter, r *http.Request) {
		var order holdOrder
		accept(w, r, &order, func() error { l.holds.set(order); return nil })
	})
	mux.HandleFunc("POST /hold", func(w http.ResponseWriter, _ *http.Request) {
		l.holds.goOn()
		reply(w, l.holds.report())
	})
	mux.HandleFunc("DELETE /hold", func(w http.ResponseWriter, _ *http.Request) { reply(w, l.holds.free()) })
	mux.HandleFunc("PUT /datastores", func(w http.ResponseWriter, r *http.Request) {
		var free map[string]int64
		accept(w, r, &free, func() error { return l.setFreeSpace(free) })
	})
	mux.HandleFunc("GET /gpus", func(w http.ResponseWriter, _ *http.Request) { reply(w, l.truth()) })
	return mux
}

func reply(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value)
}

func accept(w http.ResponseWriter, r *http.Request, value any, apply func() error) {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	err := decoder.Decode(value)
	if err == nil {
		err = apply()
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	reply(w, value)
}

type rpcReport struct {
	Total   int64            `json:"total"`
	Writes  int64            `json:"writes"`
	Methods map[string]int64 `json:"methods"`
}

func (r *rpcCounter) read(reset bool) rpcReport {
	r.mu.Lock()
	defer r.mu.Unlock()
	report := rpcReport{Methods: map[string]int64{}}
	for method, count := range r.methods {
		report.Methods[method] = count
		report.Total += count
		if isWrite(method) {
			report.Writes += count
		}
	}
	if reset {
		clear(r.methods)
	}
	return report
}

func (r *rpcCounter) expireIn(calls int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expireAfter = calls
}

var harmless = []string{
	"Login", "Logout", "SessionIsActive", "CurrentTime", "CreateContainerView", "CreateListView", "DestroyView", "CreateFilter",
	"DestroyPropertyFilter", "CreatePropertyCollector", "DestroyPropertyCollector", "CancelWaitForUpdates", "PlaceVm",
	"RecommendHostsForVm", "RecommendDatastores", "CancelRetrievePropertiesEx", "ContinueRetrievePropertiesEx", "IsSharedGraphicsActive",
	"RefreshGraphicsManager", "RefreshServices", "DirectPathProfileManagerQueryCapacity", "HasPrivilegeOnEntities",
}

// isWrite tells calls that change the inventory from those that only look.
func isWrite(method string) bool {
	for _, prefix := range []string{"Retrieve", "Query", "Fetch", "Find", "WaitFor", "Check", "Read", "List"} {
		if strings.HasPrefix(method, prefix) {
			return false
		}
	}
	return !slices.Contains(harmless, method)
}

type gpuTruth struct {
	ID    string      `json:"address"`
	Board string      `json:"board"`
	Mode  string      `json:"mode"`
	Type  string      `json:"graphics_type"`
	Slots []slotTruth `json:"slots"`
}

type slotTruth struct {
	VM      string `json:"vm"`
	Profile string `json:"profile"`
	Start   int    `json:"start"`
	Size    int    `json:"size"`
}

// truth shows the books, which the API shows only in part.
func (l *Lab) truth() map[string][]gpuTruth {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string][]gpuTruth{}
	for host := range maps.Values(l.hosts) {
		list := []gpuTruth{}
		for _, g := range host.gpus {
			entry := gpuTruth{ID: g.ID, Board: g.board.Name, Mode: string(g.Mode), Type: g.activeType, Slots: []slotTruth{}}
			for _, slot := range g.Slots {
				entry.Slots = append(entry.Slots, slotTruth{slot.Holder, slot.Profile.Name, slot.Start, slot.Size})
			}
			list = append(list, entry)
		}
		out[host.name] = list
	}
	return out
}
