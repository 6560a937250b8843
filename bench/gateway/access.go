package gateway

import (
	"log/slog"
	"net/http"
	"time"
)

// line is what the access log says of a request; the handlers fill it in.
type line struct {
	http.ResponseWriter
	status    int
	bytes     int64
	adapter   string // "": the request was not routed
	worker    int    // that answered last, -1: none
	tries     int
	prompt    int32 // tokens, estimated from text
	firstByte time.Duration
	events    int    // of the answer, as many as tokens where one comes at a time
	written   func() // called once the line is in the log; nil: nothing
}

func (l *line) WriteHeader(status int) {
	l.status = status
	l.ResponseWriter.WriteHeader(status)
}

func (l *line) Write(p []byte) (int, error) {
	if l.status == 0 {
		l.status = http.StatusOK
	}
	n, err := l.ResponseWriter.Write(p)
	l.bytes += int64(n)
	return n, err
}

// Flush implements http.Flusher.
func (l *line) Flush() {
	if f, ok := l.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// lineOf is the line of a request, one that nobody reads if there is no log.
func lineOf(rw http.ResponseWriter) *line {
	if l, ok := rw.(*line); ok {
		return l
	}
	return &line{ResponseWriter: rw}
}

// logged serves a request and writes its line, also if it breaks off.
func (g *Gateway) logged(rw http.ResponseWriter, r *http.Request) {
	l := &line{ResponseWriter: rw, worker: -1}
	begun := time.Now()
	whole := false
	defer func() {
		if l.status == 0 {
			l.status = http.StatusOK // nothing was written
		}
		attrs := []slog.Attr{
			slog.String("client", r.RemoteAddr), slog.String("method", r.Method), slog.String("path", r.URL.Path),
			slog.Int("status", l.status), slog.Int64("bytes", l.bytes), slog.Float64("duration_s", time.Since(begun).Seconds()),
		}
		if l.adapter != "" {
			attrs = append(attrs, slog.String("adapter", l.adapter), slog.Int("worker", l.worker), slog.Int("tries", l.tries),
				slog.Int("prompt_tokens", int(l.prompt)), slog.Int("events", l.events), slog.Float64("first_byte_s", l.firstByte.Seconds()))
		}
		if !whole || r.Context().Err() != nil {
			attrs = append(attrs, slog.Bool("broken_off", true))
		}
		g.cfg.Access.LogAttrs(r.Context(), slog.LevelInfo, "request", attrs...)
		if l.written != nil {
			l.written()
		}
	}()
	g.mux.ServeHTTP(l, r)
	whole = true
}
