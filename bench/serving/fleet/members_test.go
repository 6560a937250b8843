package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lorasim/router"
	"lorasim/trace"
)

// joinable makes a fleet whose set of workers can change. It notes for how many workers each router is made.
func joinable(made *[]int) func(*Config) {
	return func(c *Config) {
		rt := c.Router
		c.Extend = func(workers []Info, _ []trace.Adapter) (*router.Router, []Limits, error) {
			*made = append(*made, len(workers))
			next := *rt
			next.Placement = slices.Repeat([][]int32{{0}}, len(workers))
			return &next, slices.Repeat([]Limits{{Slots: 7}}, len(workers)), nil
		}
	}
}

func mustAdd(t *memory, f *Fleet, url string) int {
	t.Helper()
	w, err := f.Add(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// urls are the workers of a fleet with their indexes, as in "0=http://host1".
func members(f *Fleet) string {
	var list []string
	for _, s := range f.Status() {
		text := fmt.Sprint(s.Worker, "=", strings.TrimPrefix(s.URL, "http://"))
		if s.Leaving {
			text += " leaving"
		}
		if !s.Up {
			text += " down"
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}

// Workers join and leave while requests run: one that leaves takes no new requests and goes when its last one has
// ended; its slot goes to the next that joins; what still ends on the worker before does not count for the new one.
func TestMembersJoinAndLeave(t *testing.T) {
	inMemory(t, func(t *memory) {
		a, b, c := newFakeWorker(t), newFakeWorker(t), newFakeWorker(t)
		var made []int
		f, policy, _ := startFleet(t, 2, joinable(&made), a)
		check := func(what, want string) {
			t.Helper()
			if synctest.Wait(); members(f) != want {
				t.Errorf("%s: %s, expected %s", what, members(f), want)
			}
		}
		check("start", "0=host1")
		if w := mustAdd(t, f, b.URL); w != 1 || len(b.did()) != 1 {
			t.Errorf("worker %d", w)
		}
		check("one joins", "0=host1, 1=host2")
		if s := f.Status()[1]; s.Slots != 7 || f.Up() != 2 || f.Find(b.URL) != 1 || f.Find(c.URL) != -1 {
			t.Errorf("%+v", s)
		}
		if _, err := f.Add(context.Background(), b.URL+"/"); !errors.Is(err, ErrMember) {
			t.Errorf("again: %v", err)
		}

		policy.to = 1
		r := &Request{Request: router.Request{ID: 1, Adapter: 0, Prompt: 10, MaxNew: 5}}
		if w := f.Requests.Route(r); w != 1 {
			t.Fatalf("routed to %d", w)
		}
		f.Requests.Tokens(r, 1, true)
		if err := f.Remove(1, false); err != nil {
			t.Fatal(err)
		}
		check("a request is in flight", "0=host1, 1=host2 leaving")
		if w := f.Requests.Route(&Request{Request: router.Request{ID: 2, Adapter: 1}}); w != 0 {
			t.Errorf("a new request goes to %d", w)
		}
		if err := f.Drain(1, false); err == nil {
			t.Error("a worker that leaves can be made to take requests")
		}
		if w := mustAdd(t, f, b.URL); w != 1 {
			t.Errorf("worker %d", w)
		}
		check("it stays after all", "0=host1, 1=host2")
		if err := f.Remove(1, false); err != nil {
			t.Fatal(err)
		}
		fault := r.Fault(1, errors.New("broken"))
		f.Requests.Left(r)
		check("its request has ended", "0=host1")
		f.workers[1].loras.counts.FailedLoads++ // a load that ends only now
		if err := f.Drain(1, true); err == nil || !strings.Contains(err.Error(), "worker 1 has left") {
			t.Errorf("drain: %v", err)
		}
		if v := f.view.Workers[1]; v.Up || v.Load() != 0 || v.Adapters[0].Tier != router.Disk {
			t.Errorf("the slot is %+v", v)
		}

		if w := mustAdd(t, f, c.URL); w != 1 {
			t.Errorf("worker %d", w)
		}
		check("another one has the slot", "0=host1, 1=host3")
		f.Requests.Tried(r, []Fault{fault}, true)
		if s := f.Status()[1]; s.Failures != 0 {
			t.Errorf("a failure of the worker before counts: %+v", s)
		}
		if want := []int{2, 2}; !slices.Equal(made, want) {
			t.Errorf("routers for %v workers, expected %v", made, want)
		}
		if s := f.Stats(); s.Joins != 2 || s.Leaves != 1 || s.Workers[1].FailedLoads != 1 ||
			s.Total().FailedLoads != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// A worker that joins while the fleet runs is probed; one that does not answer yet comes up later; one that has left is
// not asked any more.
func TestMembersAreProbed(t *testing.T) {
	inMemory(t, func(t *memory) {
		a, b := newFakeWorker(t), newFakeWorker(t)
		var made []int
		var said []string
		f, _, _ := startFleet(t, 1, func(c *Config) {
			joinable(&made)(c)
			c.Poll = time.Second
			c.Log = func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
		}, a)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() { f.Run(ctx); close(ended) }()
		synctest.Wait()
		b.Kill()
		if w := mustAdd(t, f, b.URL); w != 1 || f.Up() != 1 {
			t.Fatalf("worker %d, %d up", w, f.Up())
		}
		if !slices.ContainsFunc(said, func(line string) bool { return strings.Contains(line, "("+b.URL+"): ") }) {
			t.Errorf("the log does not say why worker 1 is down: %q", said)
		}
		late := newFakeWorker(t)
		f.mu.Lock()
		f.workers[1].engine.url = late.URL // it comes up
		f.mu.Unlock()
		time.Sleep(3 * time.Second)
		if f.Up() != 2 {
			t.Errorf("%s", members(f))
		}
		if err := f.Remove(1, false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		late.Kill()
		time.Sleep(3 * time.Second)
		if s := f.Stats(); s.Leaves != 1 || s.Downs != 0 {
			t.Errorf("%+v", s)
		}
		cancel()
		<-ended
	})
}

// cutter is the owner of requests that notes where they were cut.
type cutter struct{ at []int }

func (c *cutter) Cut(w int, cause error) {
	if errors.Is(cause, ErrLeft) {
		c.at = append(c.at, w)
	}
}

func TestMemberLeavesAtOnce(t *testing.T) {
	inMemory(t, func(t *memory) {
		var made []int
		f, _, _ := startFleet(t, 1, joinable(&made), newFakeWorker(t))
		r := &Request{Request: router.Request{ID: 1, Adapter: trace.BaseModel}}
		owner := &cutter{}
		r.Owner = owner
		f.Requests.Route(r)
		if err := errors.Join(f.Remove(0, false), f.Remove(0, true)); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(owner.at, []int{0}) {
			t.Errorf("cut on %v", owner.at)
		}
		f.Requests.Left(r)
		synctest.Wait()
		if members(f) != "" || f.Requests.Route(r) != router.None {
			t.Errorf("the last worker has left: %s", members(f))
		}
	})
}

func TestMembersAreFixed(t *testing.T) {
	inMemory(t, func(t *memory) {
		f, _, _ := startFleet(t, 1, nil, newFakeWorker(t))
		_, err := f.Add(context.Background(), "http://host9")
		if again := f.Remove(0, false); !errors.Is(err, errFixed) || !errors.Is(again, errFixed) {
			t.Errorf("%v, %v", err, again)
		}
	})
}

// A router that cannot be made for one more worker leaves the fleet as it was.
func TestMemberThatCannotJoin(t *testing.T) {
	inMemory(t, func(t *memory) {
		f, _, _ := startFleet(t, 1, func(c *Config) {
			c.Extend = func([]Info, []trace.Adapter) (*router.Router, []Limits, error) {
				return nil, nil, errors.New("too many")
			}
		}, newFakeWorker(t))
		if _, err := f.Add(context.Background(), newFakeWorker(t).URL); err == nil || members(f) != "0=host1" ||
			len(f.view.Workers) != 1 {
			t.Errorf("%v: %s", err, members(f))
		}
		if _, err := f.Add(context.Background(), "ftp://x"); err == nil || !strings.Contains(err.Error(), "ftp://x") {
			t.Errorf("%v", err)
		}
	})
}

// The number of requests that a worker runs at a time, where nobody tells it, is at least what the worker runs.
func TestLearnedLimit(t *testing.T) {
	for _, c := range []struct{ reported, stated, assumed, runs, want int }{
		{0, 0, 16, 40, 40}, {0, 0, 16, 9, 16}, {0, 8, 16, 40, 8}, {32, 0, 16, 40, 32}, {0, 0, 0, 40, 0},
	} {
		inMemory(t, func(t *memory) {
			k := newFakeWorker(t)
			k.info["max_running_requests"] = c.reported
			f, _, _ := startFleet(t, 1, func(cfg *Config) {
				cfg.Limits = []Limits{{MaxRunning: c.assumed}}
				cfg.Stated.MaxRunning = c.stated
			}, k)
			k.load.Running = c.runs
			f.prober.probe(context.Background(), f.workers[0])
			if got := f.Status()[0].MaxRunning; got != c.want {
				t.Errorf("%+v: %d", c, got)
			}
		})
	}
}
