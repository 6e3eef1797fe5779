// Package fsnotify replaces github.com/fsnotify/fsnotify in the lab's builds
// with watchers that never report anything.
//
// The programs of a control plane watch their certificate files, each with an
// inotify instance of its own: thirteen for a Harvester, and a system has 128
// per user by default. The files of a lab never change while its programs run.
package fsnotify

import "errors"

// Op is a set of operations on a file.
type Op uint32

const (
	Create Op = 1 << iota
	Write
	Remove
	Rename
	Chmod
)

// ErrNonExistentWatch is never returned: nothing is watched.
var ErrNonExistentWatch = errors.New("fsnotify: can't remove non-existent watch")

// Has reports whether the set contains an operation.
func (o Op) Has(h Op) bool { return o&h != 0 }

// Event is what a watcher would report.
type Event struct {
	Name string
	Op   Op
}

// Has reports whether the event is about an operation.
func (e Event) Has(op Op) bool { return e.Op.Has(op) }

// Watcher watches nothing, and both of its channels stay silent.
type Watcher struct {
	Events chan Event
	Errors chan error
}

// NewWatcher returns a watcher without using an inotify instance.
func NewWatcher() (*Watcher, error) {
	return &Watcher{Events: make(chan Event), Errors: make(chan error)}, nil
}

// Add accepts any path.
func (*Watcher) Add(string) error { return nil }

// Remove accepts any path.
func (*Watcher) Remove(string) error { return nil }

// Close leaves the channels open: readers select on them beside their own signal to end.
func (*Watcher) Close() error { return nil }
