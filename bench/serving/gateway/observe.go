package gateway

import (
	"bytes"
	"cmp"
	"log/slog"
	"math"
	"net/http"
	"time"

	"lorasim/internal/format"
	"lorasim/router/promtext"
)

// line is the line of the access log for one request. The handlers fill it in.
type line struct {
	http.ResponseWriter
	status    int
	bytes     int64
	adapter   string // "": the request was not routed
	worker    int    // that answered last, -1: none
	url       string // its own
	tries     int
	prompt    int32 // tokens, as the worker says, else estimated from text
	output    int64 // tokens; -1: not known
	limit     int32 // max_tokens of the request; 0: it states none
	firstByte time.Duration
	events    int  // of the answer, as many as tokens where one comes at a time
	inside    bool // it counts for Drain until the line is in the log
	streams   bool // the answer leaves as it comes: its length is not known
	early     bool // the header was sent before the answer had content
	patience  time.Duration
	extended  time.Time // when the client was last given patience to take more of the answer
}

// told notes the numbers of tokens of an answer that has ended. For a stream that does not state them, the number of
// output tokens is that of its events, except [DONE].
func (l *line) told(a *answer) {
	if a.usage.Prompt >= 0 {
		l.prompt = int32(min(a.usage.Prompt, math.MaxInt32))
	}
	switch l.output = a.usage.Output; {
	case l.output < 0 && a.form == tokenForm:
		l.output = int64(a.events)
		if bytes.Contains(a.tail[:], doneMark) {
			l.output--
		}
	}
}

func (l *line) WriteHeader(status int) {
	if l.status != 0 {
		return
	}
	l.extend()
	l.status = status
	l.ResponseWriter.WriteHeader(status)
}

// extend sets the time in which the client must take the next bytes. Without a limit, a client that takes nothing
// would keep its request running on the worker.
func (l *line) extend() {
	if now := time.Now(); now.Sub(l.extended) > l.patience/4 {
		l.extended = now
		// without deadlines: no limit
		http.NewResponseController(l.ResponseWriter).SetWriteDeadline(now.Add(l.patience))
	}
}

func (l *line) Write(p []byte) (int, error) {
	l.extend()
	n, err := l.ResponseWriter.Write(p)
	l.bytes += int64(n)
	if l.streams && err == nil {
		err = l.flush()
	}
	return n, err
}

// flush is not for the proxy, which would send the header first, alone.
func (l *line) flush() error { return http.NewResponseController(l.ResponseWriter).Flush() }

// serve serves a request and writes its line to the access log, even if the request breaks off.
func (g *Gateway) serve(rw http.ResponseWriter, r *http.Request, handle http.HandlerFunc) {
	l := &line{ResponseWriter: rw, worker: -1, output: -1, patience: g.cfg.ClientTimeout}
	begun := time.Now()
	whole := false
	defer func() {
		l.extend() // for what the server still writes
		if l.inside {
			defer g.leave()
		}
		if g.cfg.Access == nil {
			return
		}
		const most = 16 // attributes
		attrs := append(make([]slog.Attr, 0, most),
			slog.String("client", r.RemoteAddr), slog.String("method", format.Clip(r.Method, 20)),
			slog.String("path", format.Clip(r.URL.Path, 200)),
			slog.Int("status", cmp.Or(l.status, http.StatusOK)), // where nothing was written
			slog.Int64("bytes", l.bytes), slog.Float64("duration_s", time.Since(begun).Seconds()))
		if l.adapter != "" {
			attrs = append(attrs, slog.String("adapter", l.adapter), slog.Int("worker", l.worker),
				slog.String("url", l.url), slog.Int("tries", l.tries), slog.Int("prompt_tokens", int(l.prompt)))
			if l.limit > 0 {
				attrs = append(attrs, slog.Int("max_tokens", int(l.limit)))
			}
			if l.output >= 0 {
				attrs = append(attrs, slog.Int64("output_tokens", l.output))
			}
			attrs = append(attrs, slog.Int("events", l.events), slog.Float64("first_byte_s", l.firstByte.Seconds()))
		}
		if !whole || r.Context().Err() != nil {
			attrs = append(attrs, slog.Bool("broken_off", true))
		}
		if h := g.cfg.Access.Handler(); h.Enabled(r.Context(), slog.LevelInfo) {
			entry := slog.NewRecord(time.Now(), slog.LevelInfo, "request", 0) // without the place in the source
			entry.AddAttrs(attrs...)
			h.Handle(r.Context(), entry) // the log counts the lines that it drops
		}
	}()
	handle(l, r)
	whole = true
}

// collectConnections adds the counts of connections to workers.
func (g *Gateway) collectConnections(p *promtext.Page) {
	s := g.transport.Stats()
	p.Add(promtext.Counter, "lorasim_gateway_connections_opened_total", "Connections opened to workers.",
		float64(s.Opened))
	for reason, n := range map[string]int64{"stale": s.Stale, "unasked": s.Unasked, "expired": s.Expired} {
		p.Add(promtext.Counter, "lorasim_gateway_connections_closed_total",
			"Idle connections closed: by the worker (stale), for bytes that no request asked for (unasked), for age or "+
				"number (expired).", float64(n), promtext.Label{Name: "reason", Value: reason})
	}
}
