package router_test

import (
	"fmt"

	"lorasim/router"
	_ "lorasim/router/builtin"
	"lorasim/trace"
)

// A policy picks a worker for each request from what it sees of the cluster.
func ExampleNew() {
	env := router.Env{
		Workers:  router.Alike(3, router.Spec{MaxRunning: 64, Slots: 4}),
		Adapters: trace.Names(8, []int{16}),
		Seed:     1,
	}
	rt, err := router.New("affinity-spill:threshold=4,ties=first", env)
	if err != nil {
		fmt.Println(err)
		return
	}
	view := &router.View{Adapters: env.Adapters, Workers: make([]router.Worker, 3)}
	for j := range view.Workers {
		view.Workers[j] = router.Worker{Up: true, Running: 5, Adapters: make([]router.AdapterState, 8)}
	}
	view.Workers[1].Running = 2                   // the least loaded
	view.Workers[2].Adapters[6].Tier = router.GPU // it has adapter 6 in a slot
	request := router.Request{ID: 1, Adapter: 6, Prompt: 200, MaxNew: 100}
	fmt.Println("to", rt.Policy.Route(request, view).Worker)
	view.Workers[2].Queued = 4 // its queue is long
	fmt.Println("to", rt.Policy.Route(request, view).Worker)
	// Output:
	// to 2
	// to 1
}

// turnOptions are the options of a policy.
type turnOptions struct {
	Step int `default:"1" check:">=1" help:"workers to go on by"`
}

// Build implements router.Builder.
func (o *turnOptions) Build(router.Env) (*router.Router, error) {
	return &router.Router{Policy: &turn{step: o.Step}}, nil
}

// turn goes on by so many workers at each request.
type turn struct {
	router.Base
	step, next int
}

func (p *turn) Route(_ router.Request, v *router.View) router.Decision {
	for range v.Workers {
		w := p.next % len(v.Workers)
		p.next += p.step
		if v.Workers[w].Usable() {
			return router.To(w)
		}
	}
	return router.To(v.LeastLoaded())
}

// A program registers policies of its own, with their options.
func ExampleRegister() {
	d := router.Describe[turnOptions]("turn", "so many workers on at each request")
	if err := router.Register(d); err != nil {
		fmt.Println(err)
		return
	}
	env := router.Env{Workers: router.Alike(3, router.Spec{})}
	rt, err := router.New("turn:step=2", env)
	if err != nil {
		fmt.Println(err)
		return
	}
	view := &router.View{Workers: []router.Worker{{Up: true}, {Up: true}, {}}}
	for id := range int64(4) {
		fmt.Print(rt.Policy.Route(router.Request{ID: id}, view).Worker, " ")
	}
	_, err = router.New("turn:step=0", env)
	fmt.Println(err)
	// Output:
	// 0 1 0 1 policy turn: step: "0" is not a whole number >= 1
}
