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

// listeners are where a gateway serves clients and operators.
type listeners struct {
	data, admin net.Listener // admin is nil: there is none
}

// adminPortOffset is how far the default port for operators is above that for
// clients. Several gateways on consecutive ports do not collide.
const adminPortOffset = 1000

// open opens the listeners, unless other hosts could reach one without a key.
func (f *gatewayFlags) open() (ls listeners, err error) {
	defer func() {
		if err != nil {
			ls.close()
		}
	}()
	if ls.data, err = listenGuarded("--listen", f.listen, f.Keys.Required(), f.insecure, "gateway-key"); err != nil {
		return ls, err
	}
	switch f.adminListen {
	case "none":
	case "":
		ls.admin, err = listenDefault("--admin-listen", f.listen, ls.data.Addr())
	default:
		ls.admin, err = listenGuarded("--admin-listen", f.adminListen, f.AdminKeys.Required(), f.insecure, "admin-key")
	}
	return ls, err
}

// listenGuarded listens on an address that only this host reaches, or that needs a key.
func listenGuarded(flag, address string, keyed, insecure bool, keyFlag string) (net.Listener, error) {
	flag += " " + address
	if at, err := netip.ParseAddrPort(address); err == nil { // before it is opened
		if err := checkExposed(flag, net.TCPAddrFromAddrPort(at), keyed, insecure, keyFlag); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	if err := checkExposed(flag, l.Addr(), keyed, insecure, keyFlag); err != nil { // names are known only now
		l.Close()
		return nil, err
	}
	return l, nil
}

// listenDefault opens the listener for operators (flag) on loopback, on a port that follows
// from that for clients, else on any free one.
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

// serveOn starts serving, and prints where.
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

// ownFiles are file descriptors that the program needs for itself.
const ownFiles = 32

// defaultConnections is how many connections of clients leave enough file descriptors
// for as many connections to workers: clients that hold connections open must not keep
// the gateway from its workers.
func defaultConnections() int {
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) != nil {
		return 10000
	}
	return int(max(min(files.Cur, math.MaxInt32), ownFiles+4)-ownFiles) / 2
}

// limited is a listener that accepts a limited number of connections at a time; others
// wait to be accepted. The connections are not wrapped, as package halfclose looks for
// its own: the server tells of their end.
type limited struct {
	net.Listener
	open   chan struct{} // a place for each connection
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

// connState is for http.Server.ConnState: a connection that has ended leaves its place.
func (l *limited) connState(_ net.Conn, s http.ConnState) {
	if s == http.StateClosed || s == http.StateHijacked {
		<-l.open
	}
}

// maxHeader bounds the header of a request, bytes.
const maxHeader = 64 << 10

// gatewayLog is the log of requests and plans. A log that nobody reads delays no
// request: lines that do not fit are dropped and counted.
type gatewayLog struct {
	*slog.Logger // nil: none
	stderr       *linelog.Writer
	file         *linelog.Writer // nil: not to a file
	opened       *os.File
	name         string
}

// openLog opens the log: lines of text on stderr, of JSON in a file, or none.
// Whatever else the gateway says goes to stderr as well.
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

// openAppending opens a log. A named pipe without a reader would make the opening wait if
// it were only for writing.
func openAppending(name string) (*os.File, error) {
	if of, err := os.Stat(name); err == nil && of.Mode()&os.ModeNamedPipe != 0 {
		return os.OpenFile(name, os.O_RDWR, 0)
	}
	return os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
}

// errorLog is for what net/http says.
func (l *gatewayLog) errorLog() *log.Logger { return log.New(l.stderr, "lorasim: ", 0) }

func (l *gatewayLog) dropped() int64 {
	n := l.stderr.Dropped()
	if l.file != nil {
		n += l.file.Dropped()
	}
	return n
}

// reopen opens the file anew, which logrotate has moved away.
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
	time.AfterFunc(time.Second, func() { former.Close() }) // a piece may be on its way
}

// flushTime bounds how long the end of the log may take.
const flushTime = time.Second

func (l *gatewayLog) close() error {
	err := l.stderr.Close(flushTime)
	if l.file != nil {
		err = errors.Join(err, l.file.Close(flushTime), l.opened.Close())
	}
	return err
}

// watchSignals makes SIGHUP reopen the log, and a closed terminal or pipe no reason
// to end: requests are in flight.
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

// guard reads and checks who may use the gateway for what.
func (f *gatewayFlags) guard() error {
	clients, err := f.clientKey.read()
	if err != nil {
		return usage(err)
	}
	operators, err := f.adminKey.read()
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
		if err := checkHostName(name); err != nil {
			return usage(err)
		}
	}
	f.Allow, f.AdminHosts = f.allow, f.adminHosts
	return nil
}
