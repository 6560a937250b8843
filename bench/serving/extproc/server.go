// Package extproc implements an endpoint picker for Envoy. The filter ext_proc of an Envoy-based gateway (Envoy
// Gateway, Istio, GKE, KServe's gateways) sends each request to the picker, which answers with the server for it.
//
//	s := extproc.New(extproc.Config{Picker: picker})
//	srv := &http.Server{Handler: s}
//	extproc.Configure(srv)
//	srv.Serve(listener)
//
// A [Server] speaks the protocol, gRPC over HTTP/2, with net/http. A [Picker] decides where requests go;
// a [FleetPicker] uses the policy of a fleet. Request and response bodies must be in the mode FULL_DUPLEX_STREAMED:
// the server holds back the answer to the headers until it has read the whole body.
package extproc

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
)

// A Config configures a [Server].
type Config struct {
	Picker Picker // picks the endpoint of each request
	// MaxBody is the largest size of a request's body, bytes; 0: 32 MiB. A longer body is answered with status 413.
	MaxBody int
	// PickedHeader is the name of a response header that contains the picked endpoint. "": no header.
	PickedHeader string
	// Ready reports whether requests can be served, for health checks. nil: always.
	Ready func() bool
	// Refused is called with each refusal. nil: no calls.
	Refused func(*Refusal)
	// Log receives faults of the protocol. nil: no log.
	Log func(format string, args ...any)
}

// A Server is an http.Handler for ext_proc and for gRPC health checks.
type Server struct {
	cfg    Config
	open   atomic.Int64
	closed atomic.Bool
}

// New returns a server with the given configuration.
func New(cfg Config) *Server {
	if cfg.MaxBody == 0 {
		cfg.MaxBody = 32 << 20
	}
	if cfg.Log == nil {
		cfg.Log = func(string, ...any) {}
	}
	if cfg.Refused == nil {
		cfg.Refused = func(*Refusal) {}
	}
	return &Server{cfg: cfg}
}

// Open returns the number of open streams. Envoy opens one stream per request.
func (s *Server) Open() int64 { return s.open.Load() }

// Drain makes health checks fail from now on. The server still serves requests.
func (s *Server) Drain() { s.closed.Store(true) }

// Paths of the services.
const (
	processPath = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
	checkPath   = "/grpc.health.v1.Health/Check"
	watchPath   = "/grpc.health.v1.Health/Watch"
)

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor != 2 {
		http.Error(rw, "expected gRPC over HTTP/2", http.StatusHTTPVersionNotSupported)
		return
	}
	c := begin(rw, r)
	switch r.URL.Path {
	case processPath:
		s.open.Add(1)
		defer s.open.Add(-1)
		st := &stream{s: s, c: c, ctx: r.Context()}
		defer st.leave()
		if err := st.run(); err != nil {
			s.cfg.Log("ext_proc: %v", err)
			c.end(grpcInvalidArgument, err.Error())
			return
		}
		c.end(grpcOK, "")
	case checkPath, watchPath:
		s.health(c)
	default:
		c.end(grpcUnimplemented, "unknown method "+r.URL.Path)
	}
}

// health answers a health check.
func (s *Server) health(c *call) {
	const serving, notServing = 1, 2
	if _, err := c.receive(); err != nil && !errors.Is(err, io.EOF) {
		c.end(grpcInvalidArgument, err.Error())
		return
	}
	status := uint64(serving)
	if s.closed.Load() || s.cfg.Ready != nil && !s.cfg.Ready() {
		status = notServing
	}
	if c.send(appendVarint(nil, 1, status)) == nil {
		c.end(grpcOK, "")
	}
}
