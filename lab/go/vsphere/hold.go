package main

import (
	"net/http"
	"regexp"
	"sync"
)

// holds counts calls, and holds the client after one of them, so that a test
// can do something at exactly that point, such as killing the client.
type holds struct {
	mu      sync.Mutex
	order   holdOrder
	counted bool
	seen    []string
	reached bool
	release chan struct{}
}

// holdOrder: the answer of call number After is held, and each later call
// before it is carried out. With 0 calls are only counted. With Lose that call
// gets no answer: its connection ends, and all others are as always.
type holdOrder struct {
	After  int  `json:"after"`
	Writes bool `json:"writes"`
	Lose   bool `json:"lose"`
}

type holdReport struct {
	Held bool     `json:"held"`
	Seen []string `json:"seen"`
}

func (h *holds) set(order holdOrder) {
	h.free()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.order, h.counted, h.seen, h.reached, h.release = order, true, nil, false, make(chan struct{})
}

// goOn releases the client; its calls are still counted.
func (h *holds) goOn() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.release != nil {
		close(h.release)
		h.release = nil
	}
}

// free releases the client and counts no more.
func (h *holds) free() holdReport {
	report := h.report()
	h.goOn()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counted = false
	return report
}

func (h *holds) report() holdReport {
	h.mu.Lock()
	defer h.mu.Unlock()
	return holdReport{Held: h.reached && h.release != nil, Seen: append([]string{}, h.seen...)}
}

// arrived waits while the client is held, or until it is gone.
func (h *holds) arrived(r *http.Request) {
	h.mu.Lock()
	release := h.release
	reached := h.reached
	h.mu.Unlock()
	if reached && release != nil {
		wait(release, r)
	}
}

// answered counts a call that was carried out, and waits if it is the one to hold.
func (h *holds) answered(method string, r *http.Request) {
	h.mu.Lock()
	if !h.counted || method == "" || h.order.Writes && !isWrite(method) {
		h.mu.Unlock()
		return
	}
	h.seen = append(h.seen, method)
	if len(h.seen) == h.order.After {
		if h.order.Lose {
			h.mu.Unlock()
			panic(http.ErrAbortHandler)
		}
		h.reached = true
	}
	release := h.release
	reached := h.reached
	h.mu.Unlock()
	if reached && release != nil {
		wait(release, r)
	}
}

func wait(release chan struct{}, r *http.Request) {
	select {
	case <-release:
	case <-r.Context().Done():
	}
}

var calledMethod = regexp.MustCompile(`<(?:\w+:)?Body[^>]*>\s*<(?:\w+:)?(\w+)`)

func methodOf(request []byte) string {
	if found := calledMethod.FindSubmatch(request); found != nil {
		return string(found[1])
	}
	return ""
}
