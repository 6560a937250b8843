package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"lorasim/bench/serving/bearer"
	"lorasim/bench/serving/gateway"
	"lorasim/internal/halfclose"
	"lorasim/internal/linelog"
)

// listeners are the listeners of a gateway for clients and operators.
type listeners struct {
	data, admin net.Listener // admin is nil if disabled
}

// adminPortOffset is the difference between the default ports for operators and for clients. It
// avoids collisions between gateways on consecutive ports.
const adminPortOffset = 1000

// open opens the listeners, unless other hosts could reach one without a key.
func (f *gatewayFlags) open() (ls listeners, err error) {
	defer func() {
		if err != nil {
			ls.close()
		}
	}()
	if ls.data, err = listenGuarded("--listen", f.listen,
		access{f.Keys.Required(), f.insecure, "gateway-key", "insecure"}); err != nil {
		return ls, err
	}
	switch f.adminListen {
	case "none":
	case "":
		ls.admin, err = listenDefault("--admin-listen", f.listen, ls.data.Addr())
	default:
		ls.admin, err = listenGuarded("--admin-listen", f.adminListen,
			access{f.AdminKeys.Required(), f.insecure, "admin-key", "insecure"})
	}
	return ls, err
}

// listenTCP listens on the address that a flag has.
func listenTCP(flag, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if wrong, ok := errors.AsType[*net.AddrError](err); ok {
		return nil, usage(fmt.Errorf("%s %s: %s, expected HOST:PORT such as 127.0.0.1:8000", flag, address, wrong.Err))
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", flag, address, err)
	}
	return l, nil
}

// listenGuarded listens on an address that only this host can reach, or that requires a key.
func listenGuarded(of, address string, a access) (net.Listener, error) {
	flag := of + " " + address
	if at, err := netip.ParseAddrPort(address); err == nil { // check before opening
		if err := checkExposed(flag, net.TCPAddrFromAddrPort(at), a); err != nil {
			return nil, err
		}
	}
	l, err := listenTCP(of, address)
	if err != nil {
		return nil, err
	}
	if err := checkExposed(flag, l.Addr(), a); err != nil { // host names are resolved only now
		l.Close()
		return nil, err
	}
	return l, nil
}

// listenDefault opens the listener for operators (flag) on loopback. Its port follows from the port
// for clients, or is any free one.
func listenDefault(flag, listen string, data net.Addr) (net.Listener, error) {
	port := 0
	if tcp, ok := data.(*net.TCPAddr); ok {
		if _, text, err := net.SplitHostPort(listen); err == nil && text != "0" && tcp.Port+adminPortOffset < 1<<16 {
			port = tcp.Port + adminPortOffset
		}
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return l, nil
}

func (ls listeners) close() {
	for _, l := range []net.Listener{ls.data, ls.admin} {
		if l != nil {
			l.Close()
		}
	}
}

// serveOn starts serving, and prints the addresses.
func (ls listeners) serveOn(out io.Writer, maxConnections int, data *http.Server, admin http.Handler,
	failed chan<- error) (stop func()) {
	data.Handler, data.ConnContext, data.MaxHeaderBytes = halfclose.Handler(data.Handler), halfclose.ConnContext,
		maxHeader
	clients := newLimited(halfclose.Listener(ls.data), maxConnections)
	data.ConnState = clients.connState
	go func() { failed <- data.Serve(clients) }()
	fmt.Fprintf(out, "listening on http://%s\n", ls.data.Addr())
	if ls.admin == nil {
		return func() {}
	}
	srv := &http.Server{Handler: admin, ReadHeaderTimeout: data.ReadHeaderTimeout, IdleTimeout: data.IdleTimeout,
		MaxHeaderBytes: maxHeader, ErrorLog: data.ErrorLog}
	go func() { failed <- srv.Serve(ls.admin) }()
	fmt.Fprintf(out, "admin and metrics on http://%s\n", ls.admin.Addr())
	return func() { srv.Close() }
}

// ownFiles is the number of file descriptors that the program itself needs.
const ownFiles = 32

// defaultConnections returns the number of client connections that leaves enough file descriptors
// for an equal number of connections to workers. Clients that hold connections open must not cut
// the gateway off from its workers.
func defaultConnections() int {
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) != nil {
		return 10000
	}
	return int(max(min(files.Cur, math.MaxInt32), ownFiles+4)-ownFiles) / 2
}

// limited is a listener that accepts a limited number of connections at a time; further ones wait.
// It does not wrap the connections, as package halfclose needs the original ones:
// http.Server.ConnState reports their end.
type limited struct {
	net.Listener
	open   chan struct{} // one element per open connection
	closed chan struct{}
	once   sync.Once
}

func newLimited(l net.Listener, most int) *limited {
	return &limited{Listener: l, open: make(chan struct{}, most), closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.open <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.open
	}
	return c, err
}

// Close implements net.Listener.
func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// connState implements http.Server.ConnState: a connection that has ended frees its place.
func (l *limited) connState(_ net.Conn, s http.ConnState) {
	if s == http.StateClosed || s == http.StateHijacked {
		<-l.open
	}
}

// maxHeader is the largest header of a request, bytes.
const maxHeader = 64 << 10

// gatewayLog is the log of requests and plans. A slow reader of the log delays no request: lines
// that do not fit are dropped and counted.
type gatewayLog struct {
	*slog.Logger // nil if disabled
	stderr       *linelog.Writer
	file         *linelog.Writer // nil if not logging to a file
	opened       *os.File
	name         string
}

// openLog opens the log: text lines on stderr, JSON lines in a file, or none. All other messages of
// the gateway go to stderr, too.
func openLog(access string, stderr io.Writer) (*gatewayLog, error) {
	l := &gatewayLog{name: access}
	switch access {
	case "none", "-":
	default:
		var err error
		if l.opened, err = openAppending(access); err != nil {
			return nil, fmt.Errorf("--access-log: %w", err)
		}
		l.file = linelog.New(l.opened)
		l.Logger = slog.New(slog.NewJSONHandler(l.file, nil))
	}
	l.stderr = linelog.New(stderr)
	if access == "-" {
		l.Logger = slog.New(slog.NewTextHandler(l.stderr, nil))
	}
	return l, nil
}

// openAppending opens a log for appending. It opens a named pipe for reading and writing: without a
// reader, a write-only open would block.
func openAppending(name string) (*os.File, error) {
	if of, err := os.Stat(name); err == nil && of.Mode()&os.ModeNamedPipe != 0 {
		return os.OpenFile(name, os.O_RDWR, 0)
	}
	return os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
}

// errorLog returns the logger for messages of net/http.
func (l *gatewayLog) errorLog() *log.Logger { return log.New(l.stderr, "lorasim: ", 0) }

func (l *gatewayLog) dropped() int64 {
	n := l.stderr.Dropped()
	if l.file != nil {
		n += l.file.Dropped()
	}
	return n
}

// reopen reopens the file after logrotate has moved it.
func (l *gatewayLog) reopen() {
	if l.file == nil {
		return
	}
	f, err := openAppending(l.name)
	if err != nil {
		fmt.Fprintf(l.stderr, "lorasim: --access-log: %v; the open file stays in use\n", err)
		return
	}
	l.file.Redirect(f)
	former := l.opened
	l.opened = f
	time.AfterFunc(time.Second, func() { former.Close() }) // a write may be in progress
}

// flushTime limits the time to flush the log.
const flushTime = time.Second

func (l *gatewayLog) close() error {
	err := l.stderr.Close(flushTime)
	if l.file != nil {
		err = errors.Join(err, l.file.Close(flushTime), l.opened.Close())
	}
	return err
}

// watchSignals reopens the log on SIGHUP. A closed terminal or pipe does not end the gateway:
// requests are in flight.
func (l *gatewayLog) watchSignals(ctx context.Context) (stop func()) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	signal.Ignore(syscall.SIGPIPE)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-hup:
				l.reopen()
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() { signal.Stop(hup); cancel(); <-done }
}

// guard reads the keys and checks the access rules of the gateway.
func (f *gatewayFlags) guard(ctx context.Context) error {
	clients, err := f.clientKey.read(ctx)
	if err != nil {
		return usage(err)
	}
	operators, err := f.adminKey.read(ctx)
	if err != nil {
		return usage(err)
	}
	f.Keys, f.AdminKeys = bearer.New(clients...), bearer.New(operators...)
	for _, text := range f.allow {
		if _, _, err := gateway.ParseAllow(text); err != nil {
			return usage(fmt.Errorf("--allow %w", err))
		}
	}
	for _, name := range f.adminHosts {
		if err := checkHostName("--admin-host", name); err != nil {
			return usage(err)
		}
	}
	f.Allow, f.AdminHosts = f.allow, f.adminHosts
	return nil
}
