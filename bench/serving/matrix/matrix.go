// Package matrix runs every combination of server commands and client commands from a YAML file. For each combination
// it starts the server, waits until it is ready, runs the client, and stops the server. Logs and results go to one
// folder. If one combination fails, the others still run. Combinations that are done do not run again.
//
//	m, err := matrix.Load(ctx, "matrix.yaml")
//	rows, err := m.Run(ctx, matrix.Options{Log: os.Stderr})
//	err = matrix.WriteTable(os.Stdout, rows)
package matrix

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"lorasim/bench/result"
	"lorasim/bench/result/importer"
	"lorasim/internal/atomicfile"
	"lorasim/internal/format"
	"lorasim/internal/textfile"
	"lorasim/trace"
)

// Options are the settings of [Matrix.Run].
type Options struct {
	Log   io.Writer // receives progress messages; nil: none
	Rerun bool      // run finished combinations again
}

// A Row is the outcome of one combination.
type Row struct {
	Server string  `json:"server"`          // name of the server
	Client string  `json:"client"`          // name of the client
	Repeat int     `json:"repeat"`          // number of the run, from 1
	Status string  `json:"status"`          // "ok" or "failed"
	Error  string  `json:"error,omitempty"` // cause of a failure
	Dir    string  `json:"dir"`             // folder of the logs and the result
	Ready  float64 `json:"ready_s"`         // time until the server was ready, s
	Took   float64 `json:"client_s"`        // time of the client, s
	Hash   string  `json:"hash"`            // of the commands; a change makes the combination run again
	// Metrics has the values of the last block or JSON line that the client printed.
	Metrics map[string]float64 `json:"metrics,omitempty"`

	resumed bool
}

const (
	statusOK     = "ok"
	statusFailed = "failed"
	statusFile   = "status.json"
)

// combination is one run, with what is known of it beforehand.
type combination struct {
	Row
	server *Server
	client *Client
}

// combinations lists the runs: all clients of a server, then the next server.
func (m *Matrix) combinations() ([]combination, error) {
	root := m.Output
	if !filepath.IsAbs(root) {
		root = filepath.Join(m.dir, root)
	}
	var cs []combination
	for i := range m.Servers {
		for k := range m.Clients {
			server, client := &m.Servers[i], &m.Clients[k]
			text, err := json.Marshal([]any{m.Env, server, client})
			if err != nil {
				return nil, err
			}
			hash := fmt.Sprintf("%x", sha256.Sum256(text))
			for n := range m.Repeat {
				name := server.Name + "+" + client.Name
				if m.Repeat > 1 {
					name += fmt.Sprintf("+%d", n+1)
				}
				row := Row{Server: server.Name, Client: client.Name, Repeat: n + 1, Dir: filepath.Join(root, name),
					Hash: hash, Status: statusOK}
				cs = append(cs, combination{row, server, client})
			}
		}
	}
	return cs, nil
}

// Run runs the combinations that are not done yet. It returns one row for each combination, done or not. The failure
// of a combination is in its row; an error means that Run itself could not continue.
func (m *Matrix) Run(ctx context.Context, o Options) ([]Row, error) {
	if o.Log == nil {
		o.Log = io.Discard
	}
	cs, err := m.combinations()
	if err != nil {
		return nil, err
	}
	var rows []Row
	for i, c := range cs {
		was := ""
		old, ok := c.finished()
		if ok = ok && !o.Rerun; ok {
			was = ": already done"
		}
		fmt.Fprintf(o.Log, "[%d/%d] SERVER=%s CLIENT=%s%s\n", i+1, len(cs), c.Server, c.Client, was)
		if ok {
			rows = append(rows, old)
			continue
		}
		row, err := m.runOne(ctx, c, o.Log)
		if err != nil {
			return rows, err
		}
		rows = append(rows, row)
		fmt.Fprintf(o.Log, "  %s\n", strings.TrimRight(row.Status+": "+row.Error, ": "))
	}
	return rows, m.writeLog(cs)
}

// finished returns the row of a combination that succeeded before, and has not
// changed since.
func (c *combination) finished() (Row, bool) {
	var row Row
	data, err := textfile.ReadRegular(filepath.Join(c.Dir, statusFile), textfile.MaxSettings)
	if err != nil || json.Unmarshal(data, &row) != nil {
		return row, false
	}
	row.resumed = true
	return row, row.Status == statusOK && row.Hash == c.Hash
}

// runOne runs a combination. Its status file is written last, and not at all if
// ctx ends: what was interrupted runs again.
func (m *Matrix) runOne(ctx context.Context, c combination, log io.Writer) (Row, error) {
	status := filepath.Join(c.Dir, statusFile)
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return c.Row, err
	}
	if err := os.Remove(status); err != nil && !errors.Is(err, os.ErrNotExist) {
		return c.Row, err
	}
	err := m.perform(ctx, &c, log)
	if ctx.Err() != nil {
		return c.Row, ctx.Err()
	}
	if err != nil {
		c.Status, c.Error = statusFailed, err.Error()
	}
	return c.Row, atomicfile.Write(status, func(f *atomicfile.File) error { return format.JSON(f, c.Row, "  ") })
}

func (m *Matrix) perform(ctx context.Context, c *combination, log io.Writer) error {
	serverLog, err := os.Create(filepath.Join(c.Dir, "server.log"))
	if err != nil {
		return err
	}
	defer serverLog.Close()
	begun := time.Now()
	p, err := m.start(c, &c.server.Program, c.server.Stop, serverLog)
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	defer func() {
		fmt.Fprintf(log, "  server %s\n", p.stop(signals[c.server.Stop.Signal], c.server.Stop.Timeout))
	}()
	if err := c.server.awaitReady(ctx, p, serverLog.Name()); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	c.Ready = time.Since(begun).Seconds()
	fmt.Fprintf(log, "  server ready after %.1f s\n", c.Ready)
	begun = time.Now()
	err = m.runClient(ctx, c)
	c.Took = time.Since(begun).Seconds()
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	c.readMetrics(ctx)
	return nil
}

func (m *Matrix) runClient(ctx context.Context, c *combination) error {
	clientLog, err := os.Create(filepath.Join(c.Dir, "client.log"))
	if err != nil {
		return err
	}
	defer clientLog.Close()
	if d := c.client.Timeout; d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, d, fmt.Errorf("not done within %v", d))
		defer cancel()
	}
	p, err := m.start(c, &c.client.Program, stopClient, clientLog)
	if err != nil {
		return err
	}
	return p.await(ctx)
}

// readMetrics takes the metrics of the last result in the client's output. A
// client that prints none is no failure: not all are benchmarks.
func (c *combination) readMetrics(ctx context.Context) {
	runs, _, err := importer.Files(ctx, trace.Files{}, []string{filepath.Join(c.Dir, "client.log")})
	if err != nil || len(runs) == 0 {
		return
	}
	c.Metrics = map[string]float64{}
	for k := range result.NumMetrics {
		if v, ok := runs[len(runs)-1].Metrics.Get(k); ok {
			c.Metrics[k.String()] = v
		}
	}
}

// writeLog joins the clients' outputs in one file, in the form of the harness
// that lorasim compare reads.
func (m *Matrix) writeLog(cs []combination) error {
	path := filepath.Join(filepath.Dir(cs[0].Dir), "results.txt")
	return atomicfile.Write(path, func(f *atomicfile.File) error {
		for _, c := range cs {
			if err := c.copyLog(f); err != nil {
				return err
			}
		}
		return nil
	})
}

// copyLog writes a head with the names and the command, and the client's output.
func (c *combination) copyLog(w io.Writer) error {
	log, err := os.Open(filepath.Join(c.Dir, "client.log"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer log.Close()
	line := strings.Repeat("#", 80)
	_, err = fmt.Fprintf(w, "%s\nSERVER: %s\nCLIENT: %s\nCOMMAND: %s\n%s\n", line, c.Server, c.Client,
		strings.TrimSpace(c.client.Command), line)
	if err == nil {
		_, err = io.Copy(w, log)
	}
	if err == nil {
		_, err = io.WriteString(w, "\n")
	}
	return err
}

// columns of the table beside the names and the status.
var columns = []struct {
	title  string
	metric result.ID
}{
	{"COMPLETED", result.Completed}, {"DURATION s", result.Duration}, {"REQ/S", result.RequestThroughput},
	{"OUT TOK/S", result.OutputThroughput}, {"MEAN E2E ms", result.MeanE2E}, {"MEAN TTFT ms", result.MeanTTFT},
	{"P99 TTFT ms", result.P99TTFT}, {"MEDIAN ITL ms", result.MedianITL},
}

// WriteTable writes the rows as a table with aligned columns.
func WriteTable(w io.Writer, rows []Row) error {
	head := []string{"SERVER", "CLIENT", "STATUS"}
	for _, c := range columns {
		head = append(head, c.title)
	}
	table := [][]string{append(head, "NOTE")}
	for _, r := range rows {
		fields := []string{r.Server, r.Client, r.Status}
		for _, c := range columns {
			text := "-"
			if v, ok := r.Metrics[c.metric.String()]; ok {
				text = result.FormatMetric(c.metric, v)
			}
			fields = append(fields, text)
		}
		note := strings.ReplaceAll(r.Error, "\n", " ")
		if r.resumed {
			note = cmp.Or(note, "already done")
		}
		table = append(table, append(fields, note))
	}
	return format.Table(w, table)
}

// Failed returns the number of rows that failed.
func Failed(rows []Row) (n int) {
	for _, r := range rows {
		if r.Status != statusOK {
			n++
		}
	}
	return n
}

// process is a shell command in a group of its own, so that all it starts can be
// stopped with it.
type process struct {
	*exec.Cmd
	done chan struct{}
	err  error // once done
}

// start runs a program in the folder of the file, with the environment of this one,
// what the file sets, and the names and the folder of the combination.
func (m *Matrix) start(c *combination, what *Program, stop Stop, output *os.File) (*process, error) {
	p := &process{Cmd: &exec.Cmd{}, done: make(chan struct{})}
	var err error
	if p.Dir, err = filepath.Abs(m.dir); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return nil, err
	}
	p.Env = os.Environ() // of two values of a name the later counts
	for _, env := range []map[string]string{m.Env, what.Env, {"MATRIX_SERVER": c.Server, "MATRIX_CLIENT": c.Client,
		"MATRIX_DIR": dir}} {
		for k, v := range env {
			p.Env = append(p.Env, k+"="+v)
		}
	}
	p.Stdout, p.Stderr = output, output
	unwatch, err := startWatched(p.Cmd, what.Command, stop)
	if err != nil {
		return nil, err
	}
	go func() {
		p.err = p.Wait()
		unwatch()
		close(p.done)
	}()
	return p, nil
}

// stopClient is how a client is stopped that takes too long or is interrupted.
var stopClient = Stop{Signal: "TERM", Timeout: 5 * time.Second}

// getenv is a variable of the command's environment.
func (p *process) getenv(name string) string {
	for _, e := range slices.Backward(p.Env) {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}

func (p *process) signal(s syscall.Signal) { syscall.Kill(-p.Process.Pid, s) } // it may be gone already

// stop signals the group and kills it after the timeout. It says how it ended.
func (p *process) stop(s syscall.Signal, timeout time.Duration) string {
	select {
	case <-p.done:
		p.signal(syscall.SIGKILL) // what is left of the group
		return "had already ended"
	default:
	}
	p.signal(s)
	how := "stopped"
	select {
	case <-p.done:
	case <-time.After(timeout):
		how = fmt.Sprintf("killed: it did not stop within %v", timeout)
	}
	p.signal(syscall.SIGKILL) // what is left of the group
	<-p.done
	return how
}

// await waits for the end of a client; it is stopped when ctx ends.
func (p *process) await(ctx context.Context) error {
	select {
	case <-p.done:
		p.signal(syscall.SIGKILL) // what it left in the background
		return p.err
	case <-ctx.Done():
		p.stop(signals[stopClient.Signal], stopClient.Timeout)
		return context.Cause(ctx)
	}
}

// lookEvery is the time between two looks at a server that is starting.
const lookEvery = 100 * time.Millisecond

// maxTail bounds how much of a server's log is searched at a time, in bytes.
const maxTail = 1 << 20

// tail returns the end of a file.
func tail(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > maxTail {
		if _, err := f.Seek(-maxTail, io.SeekEnd); err != nil {
			return nil, err
		}
	}
	return io.ReadAll(io.LimitReader(f, maxTail))
}

// awaitReady returns when the server is ready, or why it never will be.
func (s *Server) awaitReady(ctx context.Context, p *process, log string) error {
	said := regexp.MustCompile("(?m)" + s.Ready.Log) // checked by Parse
	ctx, cancel := context.WithTimeoutCause(ctx, s.Ready.Timeout, fmt.Errorf("not ready within %v", s.Ready.Timeout))
	defer cancel()
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	answers := func(url string) bool {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, os.Expand(url, p.getenv), nil)
		if err != nil {
			return false
		}
		resp, err := client.Do(req)
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode/100 == 2
	}
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	ready := false
	for {
		if !ready {
			text, err := tail(log)
			if err != nil {
				return err
			}
			ready = said.Match(text)
		}
		if ready && !slices.ContainsFunc(s.Ready.URLs, func(url string) bool { return !answers(url) }) {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("ended before it was ready: %v", p.ProcessState)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.C:
		}
	}
}
