// Package imagecheck holds the Dockerfile to what docs/container.md promises, with BuildKit's own parser and linter: an
// empty image with a static program that is not root, can be reached, and has a health check that needs no shell.
package imagecheck

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

const folder = "../../"

func stages(t *testing.T) []instructions.Stage {
	t.Helper()
	f, err := os.Open(folder + "Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	parsed, err := parser.Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range parsed.Warnings {
		t.Errorf("%s", w.Short)
	}
	list, _, err := instructions.Parse(parsed.AST, linter.New(&linter.Config{
		Warn: func(rule, _, _, message string, _ []parser.Range) { t.Errorf("%s: %s", rule, message) },
	}))
	if err != nil || len(list) != 2 {
		t.Fatalf("%d stages, expected a build and the image: %v", len(list), err)
	}
	return list
}

// of lists the instructions of one kind.
func of[T instructions.Command](s instructions.Stage) (list []T) {
	for _, c := range s.Commands {
		if c, ok := c.(T); ok {
			list = append(list, c)
		}
	}
	return list
}

// The image holds one static program of the Go version that go.mod wants.
func TestBuild(t *testing.T) {
	list := stages(t)
	mod, err := os.ReadFile(folder + "go.mod")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(mod), "\ngo ")
	line, _, _ := strings.Cut(rest, "\n")
	version := strings.Join(append(strings.Split(strings.TrimSpace(line), "."), "0")[:2], ".")
	if list[0].BaseName != "golang:"+version || list[1].BaseName != "scratch" {
		t.Errorf("images %q and %q, expected golang:%s and scratch", list[0].BaseName, list[1].BaseName, version)
	}
	static := slices.ContainsFunc(of[*instructions.RunCommand](list[0]), func(c *instructions.RunCommand) bool {
		return strings.Contains(strings.Join(c.CmdLine, " "), "CGO_ENABLED=0 go build")
	})
	if !static {
		t.Error("no static build: an empty image has no C library")
	}
	if n := len(of[*instructions.RunCommand](list[1])); n > 0 {
		t.Errorf("%d RUN in an image without a shell", n)
	}
	ignored, err := os.ReadFile(folder + ".dockerignore")
	if err != nil || !slices.Contains(strings.Fields(string(ignored)), ".git") {
		t.Errorf(".dockerignore: %v, %q", err, ignored)
	}
}

// The image's user is not root, by number: Kubernetes' runAsNonRoot refuses names.
func TestUser(t *testing.T) {
	users := of[*instructions.UserCommand](stages(t)[1])
	if len(users) != 1 || strings.Trim(users[0].User, "0123456789:") != "" || strings.HasPrefix(users[0].User, "0") {
		t.Errorf("users %+v, expected one by its number, not 0", users)
	}
}

// The gateway can be reached, and its health check runs the program itself.
func TestGateway(t *testing.T) {
	image := stages(t)[1]
	env := map[string]string{}
	for _, e := range of[*instructions.EnvCommand](image) {
		for _, pair := range e.Env {
			env[pair.Key] = pair.Value
		}
	}
	exposed := of[*instructions.ExposeCommand](image)
	if len(exposed) != 1 || len(exposed[0].Ports) != 1 || env["LORASIM_LISTEN"] != "0.0.0.0:"+exposed[0].Ports[0] {
		t.Errorf("LORASIM_LISTEN is %q, exposed are %+v", env["LORASIM_LISTEN"], exposed)
	}
	checks := of[*instructions.HealthCheckCommand](image)
	if len(checks) != 1 || !slices.Equal(checks[0].Health.Test, []string{"CMD", "/lorasim", "check", "--health"}) ||
		checks[0].Health.Timeout <= 0 {
		t.Errorf("health checks %+v", checks)
	}
	entry := of[*instructions.EntrypointCommand](image)
	if len(entry) != 1 || entry[0].PrependShell || !slices.Equal(entry[0].CmdLine, []string{"/lorasim"}) {
		t.Errorf("entry point %+v", entry)
	}
}
