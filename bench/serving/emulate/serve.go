package emulate

import (
	"context"
	"math"
	"net/http"

	"lorasim/bench/serving/httpapi"
)

// form is one of the forms in which clients ask for tokens, such as a chat. Its functions append to b.
type form struct {
	early  bool                                         // a stream's header leaves before its first token
	refuse func(err error)                              // answers before anything was sent
	broken func(b []byte, err error) []byte             // events of an error after the header
	event  func(b []byte, j *job, fresh []int32) []byte // events of new tokens
	end    func(b []byte, jobs []*job) []byte           // the last events
	whole  func(b []byte, jobs []*job) []byte
}

// serve runs the orders of one request and answers it, either by events as tokens come, or as a whole.
func (w *Worker) serve(rw http.ResponseWriter, r *http.Request, orders []order, stream bool, f form) {
	s := &reply{w: w, rw: rw, form: f, stream: stream, news: make(chan struct{}, 1)}
	if err := s.start(orders); err != nil {
		s.cancel()
		f.refuse(err)
		return
	}
	if stream && f.early {
		s.begin()
	}
	for running := len(s.jobs); running > 0; {
		progress, ok := s.step(&running)
		if !ok || !progress && !s.wait(r.Context()) {
			s.cancel()
			return
		}
	}
	if !stream {
		rw.Header().Set("Content-Type", "application/json")
		writeBody(rw, f.whole(nil, s.jobs))
	}
}

// reply is the reply to one request under way.
type reply struct {
	form
	w      *Worker
	rw     http.ResponseWriter
	stream bool
	begun  bool // the header has left
	jobs   []*job
	news   chan struct{} // of all jobs
	buf    []byte
}

func (s *reply) start(orders []order) error {
	for _, o := range orders {
		if s.stream && s.w.cfg.API == httpapi.SGLang {
			o.flow = streamed
		}
		j, err := s.w.start(o, s.news)
		if err != nil {
			return err
		}
		j.index = len(s.jobs)
		s.jobs = append(s.jobs, j)
	}
	return nil
}

func (s *reply) begin() {
	events(s.rw)
	flush(s.rw)
	s.begun = true
}

// step takes the new tokens of all jobs and sends them. It returns false as ok if the reply is over, since it failed or
// the client has gone.
func (s *reply) step(running *int) (progress, ok bool) {
	if s.w.silent() {
		return false, true
	}
	atATime := s.w.cfg.StreamInterval
	if !s.stream {
		atATime = math.MaxInt // till the end
	}
	s.buf = s.buf[:0]
	for _, j := range s.jobs {
		fresh, ok := j.take(atATime)
		if !ok {
			continue
		}
		progress = true
		if err := j.failure(); err != nil {
			if s.begun {
				send(s.rw, s.broken(s.buf, err), true)
			} else {
				s.refuse(err)
			}
			return true, false
		}
		if s.stream {
			s.buf = s.event(s.buf, j, fresh)
		}
		if j.ended() {
			*running--
		}
	}
	if !s.stream || !progress {
		return progress, true
	}
	if !s.begun {
		events(s.rw)
		s.begun = true
	}
	if *running == 0 {
		s.buf = s.end(s.buf, s.jobs)
	}
	return true, send(s.rw, s.buf, *running == 0)
}

// wait waits for news of the jobs. It returns false if the client has gone or the worker has stopped.
func (s *reply) wait(ctx context.Context) bool {
	select {
	case <-s.news:
		return true
	case <-ctx.Done():
	case <-s.w.eng.done:
	}
	return false
}

func (s *reply) cancel() {
	for _, j := range s.jobs {
		if !j.ended() {
			j.cancel()
		}
	}
}

// events begins a stream of server-sent events.
func events(rw http.ResponseWriter) {
	rw.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	rw.Header().Set("Transfer-Encoding", "chunked") // also of a short stream
	rw.WriteHeader(http.StatusOK)
}

func flush(rw http.ResponseWriter) {
	if f, ok := rw.(http.Flusher); ok {
		f.Flush()
	}
}

// send writes one or more events and makes them leave; the last ones leave with the end of the reply.
func send(rw http.ResponseWriter, data []byte, last bool) bool {
	_, err := rw.Write(data)
	if err == nil && !last {
		flush(rw)
	}
	return err == nil
}

const done = "data: [DONE]\n\n"
