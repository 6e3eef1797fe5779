package main

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// taskPace makes tasks slow, so that waiting for them can be tested.
type taskPace struct {
	mu   sync.Mutex
	pace pace
}

type pace struct {
	QueuedMS  int      `json:"queued_ms"`
	RunningMS int      `json:"running_ms"`
	Methods   []string `json:"methods,omitempty"`
}

func (t *taskPace) get() pace {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pace
}

func (t *taskPace) set(p pace) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pace = p
}

func (t *taskPace) of(method string) (queued, running time.Duration) {
	p := t.get()
	if len(p.Methods) > 0 && !slices.Contains(p.Methods, method) {
		return 0, 0
	}
	return time.Duration(p.QueuedMS) * time.Millisecond, time.Duration(p.RunningMS) * time.Millisecond
}

// Task references must not collide with those govmomi hands out, which count from 1.
var lastTask atomic.Int64

func init() { lastTask.Store(1_000_000) }

// operation is one *_Task method: what to check before the task exists, and what
// the task does. Both run with the lock of the entity held.
type operation struct {
	method      string
	description string
	entity      mo.Reference
	name        string
	check       func(ctx *simulator.Context) *refusal
	run         func(ctx *simulator.Context) (types.AnyType, *refusal)
	// unlocked: run takes the locks it needs itself, because it waits.
	unlocked bool
}

// perform starts the task of an operation, or refuses it at once.
func (l *Lab) perform(ctx *simulator.Context, op operation, answer func(task types.ManagedObjectReference) soap.HasFault) soap.HasFault {
	injected := l.faults.match(op.method, op.entity.Reference(), op.name)
	if injected != nil && injected.As == "soap" {
		return injected.refusal().soap()
	}
	if op.check != nil && injected == nil && l.conduct.get().Refusals == "soap" {
		var refused *refusal
		fresh := l.freshContext(ctx)
		fresh.WithLock(op.entity, func() { refused = op.check(fresh) })
		if refused != nil {
			return refused.soap()
		}
	}
	if injected != nil {
		op.check = func(*simulator.Context) *refusal { return injected.refusal() }
	}
	return answer(l.start(ctx, op))
}

func (l *Lab) start(ctx *simulator.Context, op operation) types.ManagedObjectReference {
	entity := op.entity.Reference()
	user := ""
	if ctx.Session != nil {
		user = ctx.Session.UserName
	}
	task := &simulator.Task{}
	task.Self = types.ManagedObjectReference{Type: "Task", Value: fmt.Sprintf("task-%d", lastTask.Add(1))}
	task.Info = types.TaskInfo{
		Key: task.Self.Value, Task: task.Self, Name: op.method, DescriptionId: op.description,
		Entity: &entity, EntityName: op.name, State: types.TaskInfoStateQueued,
		Cancelable: op.unlocked, QueueTime: time.Now(),
		Reason: &types.TaskReasonUser{UserName: user},
	}
	worker := l.freshContext(ctx)
	worker.WithLock(op.entity, func() { worker.Map.Put(task) })
	go l.work(worker, task, op)
	return task.Self
}

func (l *Lab) work(ctx *simulator.Context, task *simulator.Task, op operation) {
	queued, running := l.tasks.of(op.method)
	time.Sleep(queued)
	ctx.Map.AtomicUpdate(ctx, task, []types.PropertyChange{
		{Name: "info.state", Val: types.TaskInfoStateRunning},
		{Name: "info.startTime", Val: time.Now()},
	})
	time.Sleep(running)

	var result types.AnyType
	var refused *refusal
	attempt := func() {
		if op.check != nil {
			if refused = op.check(ctx); refused != nil {
				return
			}
		}
		result, refused = op.run(ctx)
	}
	if op.unlocked {
		attempt()
	} else {
		ctx.WithLock(op.entity, attempt)
	}
	if taskDone(ctx, task) {
		return // cancelled by a client
	}
	changes := []types.PropertyChange{{Name: "info.completeTime", Val: time.Now()}}
	if refused != nil {
		changes = append(changes,
			types.PropertyChange{Name: "info.error", Val: refused.localized()},
			types.PropertyChange{Name: "info.state", Val: types.TaskInfoStateError})
	} else {
		changes = append(changes,
			types.PropertyChange{Name: "info.result", Val: result},
			types.PropertyChange{Name: "info.state", Val: types.TaskInfoStateSuccess})
	}
	ctx.Map.AtomicUpdate(ctx, task, changes)
}

// freshContext gives a task its own identity for govmomi's object locks, which
// are shared by everything that runs under one context.
func (l *Lab) freshContext(ctx *simulator.Context) *simulator.Context {
	return &simulator.Context{Context: l.ctx.Context, Session: ctx.Session, Map: l.ctx.Map}
}

func taskDone(ctx *simulator.Context, task *simulator.Task) bool {
	done := false
	ctx.WithLock(task, func() {
		done = task.Info.State == types.TaskInfoStateSuccess || task.Info.State == types.TaskInfoStateError
	})
	return done
}

// inner runs a method of govmomi's own simulator to its end. The caller holds
// the lock of the entity under ctx, which govmomi's task shares.
func (l *Lab) inner(ctx *simulator.Context, body soap.HasFault, ref func() types.ManagedObjectReference) (types.AnyType, *refusal) {
	if fault := body.Fault(); fault != nil {
		refused := refusedBy(fault.VimFault().(types.BaseMethodFault))
		if fault.String != "" {
			refused.text = fault.String
		}
		return nil, refused
	}
	task := ctx.Map.Get(ref()).(*simulator.Task)
	// The task ends under ctx itself, so its lock must be asked for by another.
	watcher := l.freshContext(ctx)
	for !taskDone(watcher, task) {
		time.Sleep(200 * time.Microsecond)
	}
	if task.Info.Error != nil {
		return nil, refusedBy(task.Info.Error.Fault)
	}
	return task.Info.Result, nil
}
