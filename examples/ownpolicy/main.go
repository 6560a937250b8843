// Command ownpolicy is lorasim with a further routing policy, sticky.
package main

import (
	"log"

	"lorasim/cmd/cli"
	"lorasim/router"
)

type options struct {
	Queue int `default:"4" check:">=1" unit:"requests" help:"waiting requests from which an adapter moves on"`
}

func (o *options) Build(router.Env) (*router.Router, error) {
	return &router.Router{Policy: &sticky{queue: o.Queue, home: map[int32]int{}}}, nil
}

// sticky sends the requests of an adapter to one worker until its queue is long, then to the least
// loaded worker.
type sticky struct {
	router.Base
	queue int
	home  map[int32]int // worker by adapter
}

func (p *sticky) Route(r router.Request, v *router.View) router.Decision {
	w, ok := p.home[r.Adapter]
	if !ok || w >= len(v.Workers) || !v.Workers[w].Usable() || v.Workers[w].Queued >= p.queue {
		w = v.LeastLoaded()
		p.home[r.Adapter] = w
	}
	return router.To(w)
}

func main() {
	d := router.Describe[options]("sticky", "one worker per adapter until its queue is long")
	if err := router.Register(d); err != nil {
		log.Fatal(err)
	}
	cli.Main()
}
