package engine

import "lorasim/sim/record"

// Aborted is the reason for the end of a request that its client has aborted.
const Aborted = "aborted by the client"

// Abort ends a request that its client has aborted: at once if it waits, else at the next boundary between
// steps at which it is in the batch.
func (e *Engine) Abort(r *Request) {
	switch {
	case r.Leaving == Aborting:
	case r.state == Waiting:
		e.dequeue(r)
		e.LoRA.UnloadIfUnused(&r.Row.Adapter)
		e.Finish(r, record.Aborted, Aborted)
		e.CapacityFreed() // it may have been the one that held up the queue
	case r.state == Entering:
		e.FrontEnd.leave(r)
		e.Books.Wait(r.Adapter, r.Prompt, -1)
		e.LoRA.UnloadIfUnused(&r.Row.Adapter)
		e.Finish(r, record.Aborted, Aborted)
	case r.state == Running:
		e.Eject(r)
		r.Leaving = Aborting
	default: // in a prefill step, or between two of them
		r.Leaving = Aborting
		e.leaving = append(e.leaving, r)
	}
}

// abortRunning ends an aborted request that is in the batch, or that was returned to the queue since. It
// postpones the end of a request that is still prefilling or parked.
func (e *Engine) abortRunning(r *Request) {
	switch {
	case r.state == Waiting:
		r.Leaving = Staying
		e.Abort(r)
	case e.sched.Drop(r):
		e.Finish(r, record.Aborted, Aborted)
	default:
		e.leaving = append(e.leaving, r)
	}
}

// Withdraw removes a waiting request that moves to another engine.
func (e *Engine) Withdraw(r *Request) {
	e.dequeue(r)
	e.assign(r, -1)
	e.LoRA.UnloadIfUnused(&r.Row.Adapter)
	r.TransferredKV = 0 // a KV cache that came with it stays behind
	e.CapacityFreed()   // it may have been the one that held up the queue
}

// Eject makes a running request leave at the next boundary between steps; see [Host].
func (e *Engine) Eject(r *Request) {
	r.Leaving = Ejecting
	e.leaving = append(e.leaving, r)
	e.Interrupt()
}

// sendLeaving removes leaving requests from the batch. It is called between steps.
func (e *Engine) sendLeaving() {
	leaving := e.leaving
	e.leaving = nil
	for _, r := range leaving {
		switch {
		case r.Leaving == Aborting:
			e.abortRunning(r)
		case r.Leaving == Ejecting && r.engine == e && r.state == Running:
			n := e.KVTokensOf(r)
			e.Remove(r)
			e.assign(r, -1)
			r.Leaving = Staying
			e.host.Ejected(r, n)
		}
	}
}
