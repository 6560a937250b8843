//go:build unix

package cli

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
)

// hang is the time after which a run on a terminal counts as hanging. The runs
// take a second or two; the rest is for machines that are busy otherwise.
const hang = 10 * time.Minute

// terminal is a run of the built program on a pseudo-terminal, which is its
// stdin, stdout and stderr.
type terminal struct {
	t    *testing.T
	tty  *os.File
	cmd  *exec.Cmd
	done chan struct{} // closed when the program has ended and all is read
	name string

	mu   sync.Mutex
	seen []byte
}

func startOnTerminal(t *testing.T, dir string, columns int, args ...string) *terminal {
	t.Helper()
	cmd := exec.Command("lorasim", args...) // testscript.Main has put it into the PATH
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TERM=xterm")
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: uint16(columns)})
	if err != nil {
		t.Fatal(err)
	}
	r := &terminal{t: t, tty: tty, cmd: cmd, done: make(chan struct{}), name: fmt.Sprintf("%.40s at %d columns",
		strings.Join(args, " "), columns)}
	t.Cleanup(func() { cmd.Process.Kill(); <-r.done; tty.Close() })
	go func() {
		defer close(r.done)
		buf := make([]byte, 4096)
		for {
			n, err := tty.Read(buf)
			r.mu.Lock()
			r.seen = append(r.seen, buf[:n]...)
			r.mu.Unlock()
			if err != nil { // EIO: the program has ended
				cmd.Wait()
				return
			}
		}
	}()
	return r
}

func (r *terminal) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return string(r.seen)
}

// await waits until the output from an offset on holds a text.
func (r *terminal) await(from int, what string) {
	r.t.Helper()
	for begin := time.Now(); time.Since(begin) < hang; time.Sleep(2 * time.Millisecond) {
		if s := r.text(); len(s) >= from && strings.Contains(s[from:], what) {
			return
		}
		select {
		case <-r.done:
			if s := r.text(); len(s) >= from && strings.Contains(s[from:], what) {
				return
			}
			r.t.Fatalf("%s: ended without showing %q:\n%q", r.name, what, r.text())
		default:
		}
	}
	r.t.Fatalf("%s: hangs before showing %q:\n%q", r.name, what, r.text())
}

// wait returns the exit code.
func (r *terminal) wait() int {
	r.t.Helper()
	select {
	case <-r.done:
	case <-time.After(hang):
		r.t.Fatalf("%s: hangs:\n%q", r.name, r.text())
	}
	return r.cmd.ProcessState.ExitCode()
}

// interrupt presses Ctrl-C and returns the exit code and the CPU time that the
// program took from then on, as well as it is known: on a busy machine that says
// more than the time that passed.
func (r *terminal) interrupt() (code int, cpu time.Duration) {
	r.t.Helper()
	before := workOf(r.cmd.Process.Pid)
	r.tty.Write([]byte{3})
	code = r.wait()
	return code, r.cmd.ProcessState.UserTime() + r.cmd.ProcessState.SystemTime() - before
}

// workOf is the CPU time of a process so far, as Linux tells it; 0 elsewhere.
func workOf(pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // from the third one, state, on
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond // a hundredth of a second each
}

func (r *terminal) resize(columns int) {
	if err := pty.Setsize(r.tty, &pty.Winsize{Rows: 24, Cols: uint16(columns)}); err != nil {
		r.t.Fatal(err)
	}
}

// resized is what a test prints between what a program did.
const resized = "RESIZED"

// print writes to the terminal as the program does, if it still runs: what comes
// after it in the output was written later. Elsewhere than on Linux it does not.
func (r *terminal) print(text string) {
	if f, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/2", r.cmd.Process.Pid), os.O_WRONLY|syscall.O_NOCTTY,
		0); err == nil {
		f.WriteString(text)
		f.Close()
	}
}

// bar is how a progress line begins: with its phase and its share. The results that follow may hold percentages, too.
var bar = regexp.MustCompile(`^[a-z]+ +[0-9]+ %`)

// bars are the progress lines drawn in a piece of output.
func bars(output string) []string {
	var lines []string
	for _, part := range strings.Split(output, clearLine)[1:] {
		part, _, _ = strings.Cut(part, "\r\n")
		part, _, _ = strings.Cut(part, "^C")
		if bar.MatchString(part) {
			lines = append(lines, part)
		}
	}
	return lines
}

// noWrap checks that no progress line was so wide that it, or the ^C that a
// terminal echoes behind it, goes on in the next one.
func (r *terminal) noWrap(output string, columns int) {
	r.t.Helper()
	for _, b := range bars(output) {
		if n := len([]rune(b)); n+len("^C") >= columns {
			r.t.Errorf("%s: a line of %d characters would wrap: %q", r.name, n, b)
			return
		}
	}
}

var widths = []int{40, 80, 200}

// promptCPU is ample: it is a few hundredths of a second on a machine of 2024.
const promptCPU = 5 * time.Second

// inputs are the files that the runs on a terminal need.
func terminalInputs(t *testing.T) string {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("runs.csv", runsCSV)
	write("hist.json", histJSON)
	write("scenario.yaml", "workload:\n  num_prompts: 30000\n")
	for _, args := range [][]string{
		{"trace", "generate", "--num-prompts", "400000", "-o", "big.csv"},
		{"sim", "--num-prompts", "4000", "--policy", "static", "--records", "records.csv", "--json"},
		{"solve", "generate", "16,256,3000", "-o", "problem.json"},
	} {
		cmd := exec.Command("lorasim", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	return dir
}

// TestTerminalRuns runs commands to their end on terminals of several widths
// that change while they run.
func TestTerminalRuns(t *testing.T) {
	dir := terminalInputs(t)
	for _, c := range []struct {
		args, bar, out string
	}{
		// at one width
		{"sim --num-prompts 500000 --policy static --max-in-flight-fail 50", "simulating", "Serving Benchmark Result"},
		{"sim --num-prompts 100000 --policy static", "simulating", "Serving Benchmark Result"},
		{"trace generate --num-prompts 100000 -o w%d.parquet", "writing", "100000 requests for 32 adapters"},
		{"sweep -o sweep%d --num-prompts 1000 --policies static,p2c --seeds 3", "sweep", "p2c"},
		{"report scenario.yaml --policies static,p2c -o r%d.html", "running", ".html"},
		{"profile check runs runs.csv --histograms hist.json --seeds 8", "simulating", "mine"},
		{"profile fit runs runs.csv --histograms hist.json --fit decode.base_ms --evaluations 6", "fitting",
			"decode.base_ms"},
	} {
		for i, columns := range widths {
			if i > 0 && strings.Contains(c.args, "500000") {
				break
			}
			text := c.args
			if strings.Contains(text, "%d") {
				text = fmt.Sprintf(text, columns)
			}
			r := startOnTerminal(t, dir, columns, strings.Fields(text)...)
			r.await(0, c.bar)
			r.noWrap(r.text(), columns)
			r.resize(30)
			r.print(resized)
			code := r.wait()
			output := r.text()
			if code != 0 || !strings.Contains(output, c.out) {
				t.Fatalf("%s: exit code %d, expected 0 and %q:\n%q", r.name, code, c.out, output)
			}
			// the first line after the change may have asked for the size before it
			_, narrow, _ := strings.Cut(output, resized)
			if after := bars(narrow); len(after) > 1 {
				for _, b := range after[1:] {
					if len([]rune(b))+len("^C") >= 30 {
						t.Errorf("%s: after a change to 30 columns: %q", r.name, b)
						break
					}
				}
			}
			if last := output[strings.LastIndex(output, clearLine)+len(clearLine):]; len(bars(clearLine+last)) > 0 &&
				strings.Contains(last, "ETA") {
				t.Errorf("%s: the progress line was left on the screen: %q", r.name, last)
			}
		}
	}
}

// TestTerminalInterrupt presses Ctrl-C at several points of every command that
// shows progress. Each must end with exit code 130, as good as at once: with no
// more than promptCPU of work. A run that is over before the key is pressed is
// no run: it is tried again.
func TestTerminalInterrupt(t *testing.T) {
	dir := terminalInputs(t)
	worker := startOnTerminal(t, dir, 80, "worker", "--listen", "127.0.0.1:0", "--num-adapters", "4", "--time-scale",
		"20")
	worker.await(0, "listening on http://")
	worker.await(0, "\r\n")
	url := regexp.MustCompile(`http://[0-9.:]+`).FindString(worker.text())

	for i, c := range []struct {
		args, at string
	}{
		{"sim --num-prompts 20000000", "simulating"},
		{"sim --workload big.csv --policy static", "reading"},
		{"sim --num-prompts 2000000 --records out.parquet", "simulating"},
		{"sim --num-prompts 2000000 --oracle --plans plans.jsonl", "simulating"},
		{"sweep -o s%d --num-prompts 3000000 --policies static,p2c --seeds 4", "sweep"},
		{"sweep -o s%d --num-prompts 50000 --policies static,p2c --seeds 200", "sweep"},
		{"profile check runs runs.csv --histograms hist.json --seeds 100000", "simulating"},
		{"profile fit records records.csv", "fitting"},
		{"profile fit runs runs.csv --histograms hist.json", "fitting"},
		{"report scenario.yaml --policies static,p2c,least-loaded,plan-and-route,random,affinity -o r.html", "running"},
		{"bench " + url + " --num-adapters 4 --request-rate 4 --worker-time-scale 20 --grace 100ms", "sending"},
		{"trace generate --num-prompts 20000000 -o out.csv", "writing"},
		{"trace generate --num-prompts 20000000 -o out.parquet", "writing"},
		{"trace generate --format azure_v2 --num-prompts 20000000 -o out.txt", "writing"},
		{"trace workload --workload big.csv -o out.jsonl", "reading"},
		{"trace info --num-prompts 20000000", "reading"},
		{"trace plot --num-prompts 20000000 -o out.svg", "reading"},
		{"solve bench --size 64,512,5000", "solving"},
	} {
		for try := range 5 {
			text := c.args
			if strings.Contains(text, "%d") {
				text = fmt.Sprintf(text, 10*i+try)
			}
			columns := widths[(i+try)%len(widths)]
			r := startOnTerminal(t, dir, columns, strings.Fields(text)...)
			r.await(0, c.at)
			if try == 0 {
				time.Sleep(time.Duration(i%4) * 40 * time.Millisecond) // not always at the same point
			}
			code, cpu := r.interrupt()
			r.noWrap(r.text(), columns)
			if code == 0 && try < 4 {
				done, _ := filepath.Glob(filepath.Join(dir, "out.*"))
				for _, f := range done {
					os.Remove(f)
				}
				continue
			}
			if code != exitInterrupted || !strings.Contains(r.text(), "lorasim: interrupted\r\n") {
				t.Errorf("%s: exit code %d after Ctrl-C, expected %d:\n%q", r.name, code, exitInterrupted,
					tail(r.text()))
			}
			if cpu > promptCPU {
				t.Errorf("%s: %v of work after Ctrl-C, expected %v at most", text, cpu, promptCPU)
			}
			break
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, ".*.tmp"))
	if out, _ := filepath.Glob(filepath.Join(dir, "out.*")); err != nil || len(left)+len(out) > 0 {
		t.Errorf("files left behind: %v %v %v", left, out, err)
	}
}

func tail(s string) string { return s[max(0, len(s)-600):] }

// TestTerminalSecondInterrupt: who waits for requests in flight may stop waiting.
func TestTerminalSecondInterrupt(t *testing.T) {
	worker := newHeldWorker(t, "lora0", "lora1", "lora2", "lora3")
	r := startOnTerminal(t, t.TempDir(), 80, "bench", worker.URL, "--num-adapters", "4", "--request-rate", "100",
		"--no-warmup", "--grace", "10h",
		"--first-token-timeout", "0", "--idle-timeout", "0", "--poll-interval", "1h", "--ready-timeout", "1h")
	r.await(0, "in flight")
	for press := 0; ; press++ { // two that come too soon after each other are one to the program
		r.tty.Write([]byte{3})
		select {
		case <-r.done:
			if press == 0 {
				t.Fatalf("ended within its grace:\n%q", r.text())
			}
			return
		case <-time.After(300 * time.Millisecond):
		}
	}
}

// TestNoTerminal: what goes to a file has no progress in it.
func TestNoTerminal(t *testing.T) {
	cmd := exec.Command("lorasim", "sim", "--num-prompts", "200000", "--policy", "static", "--json")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil || stderr.Len() > 0 {
		t.Errorf("%v, stderr %q", err, stderr.String())
	}
}

// init asks three questions on a terminal, asks again after an answer that it cannot take, and writes what the flags
// would have written. Ctrl-C and Ctrl-D leave no file.
func TestInitOnTerminal(t *testing.T) {
	dir := t.TempDir()
	byFlags := exec.Command("lorasim", "init", "scenario.yaml", "--num-workers", "6", "--profile",
		"qwen3-14b-h100-vllm-0.23", "--num-adapters", "100", "--request-rate", "20")
	byFlags.Dir = t.TempDir()
	if out, err := byFlags.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want, err := os.ReadFile(filepath.Join(byFlags.Dir, "scenario.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	r := startOnTerminal(t, dir, 80, "init")
	for _, step := range []struct{ question, answer string }{
		{"Workers", "six"}, {"expected a number of workers", "6 x gtx970"}, {"neither an embedded profile", "6 x H100"},
		{"qwen3-14b-h100-vllm-0.23: H100 80 GB", "6 x qwen3-14b-h100-vllm-0.23"},
		{"Requests per second", "often"}, {"neither a number nor a file", "20"}, {"LoRA adapters [32]", "100"},
	} {
		r.await(0, step.question)
		r.tty.Write([]byte(step.answer + "\n"))
	}
	if code := r.wait(); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, r.text())
	}
	got, err := os.ReadFile(filepath.Join(dir, "scenario.yaml"))
	if err != nil || string(got) != string(want) {
		t.Errorf("%v: the answers give\n%s\nthe flags\n%s", err, got, want)
	}
	for key, code := range map[byte]int{3: 130, 4: 1} {
		r := startOnTerminal(t, t.TempDir(), 80, "init", "other.yaml", "--num-workers", "2")
		r.await(0, "Requests per second")
		r.tty.Write([]byte{key})
		if got := r.wait(); got != code {
			t.Errorf("key %d: exit code %d, expected %d:\n%s", key, got, code, r.text())
		}
		if _, err := os.Stat(filepath.Join(r.cmd.Dir, "other.yaml")); err == nil {
			t.Errorf("key %d: a file was written", key)
		}
	}
}
