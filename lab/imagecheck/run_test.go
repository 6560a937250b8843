//go:build linux

package imagecheck

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// image is a folder that holds what the image holds.
type image string

// newImage builds the program as the Dockerfile does, but for -trimpath: with it nothing that is built already serves,
// and all packages are compiled once more. Only root may change the root folder of a process.
func newImage(t *testing.T) image {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, for chroot and another user")
	}
	root := t.TempDir()
	for dir := root; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil { // the user of the image must get there
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "-C", folder, "build", "-o", filepath.Join(root, "lorasim"), "./cmd/lorasim")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return image(root)
}

// command runs the image's program as the image's user, without any other file or variable.
func (i image) command(env string, args ...string) *exec.Cmd {
	cmd := exec.Command("/lorasim", args...)
	cmd.Env = []string{env}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: string(i), Pdeathsig: syscall.SIGKILL,
		Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	return cmd
}

// start runs a command until the test ends, and returns when it has printed that it listens.
func start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Signal(syscall.SIGTERM); cmd.Wait() })
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "http://") {
			go io.Copy(io.Discard, out)
			return
		}
	}
	t.Fatalf("%v ended without listening", cmd.Args)
}

// free is a port that nobody listens on.
func free(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// outside is an address of this host that is not loopback, as other hosts see a container.
func outside(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	t.Log("no address but loopback")
	return "127.0.0.1"
}

// In an empty folder, as the image's user, the program simulates, and the gateway serves other hosts and reports its
// health.
func TestRun(t *testing.T) {
	i := newImage(t)
	if out, err := i.command("").CombinedOutput(); err != nil || !strings.Contains(string(out), "lorasim sim") {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := i.command("", "sim", "--num-prompts", "50").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	worker := fmt.Sprintf("127.0.0.1:%d", free(t))
	start(t, i.command("", "worker", "--listen", worker))
	port := free(t)
	env := fmt.Sprintf("LORASIM_LISTEN=0.0.0.0:%d", port)
	if out, err := i.command(env, "gateway", worker).CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "--insecure") {
		t.Errorf("a gateway without a key: %v\n%s", err, out)
	}
	if out, err := i.command(env, "check", "--health").CombinedOutput(); err == nil {
		t.Errorf("healthy without a gateway: %s", out)
	}
	start(t, i.command(env, "gateway", worker, "--insecure", "--admin-listen", "none", "--access-log", "none"))
	if out, err := i.command(env, "check", "--health").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	resp, err := http.Get(fmt.Sprintf("http://%s:%d/v1/models", outside(t), port))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("status %s", resp.Status)
	}
}
