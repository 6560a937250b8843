package cli

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestFirstQuestions runs the first questions of docs/start.md as a pipe: each gives an answer, with no escape codes.
// The dear ones get fewer requests.
func TestFirstQuestions(t *testing.T) {
	page, err := os.ReadFile("../../docs/start.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Eight first questions\n")
	section, _, _ = strings.Cut(section, "\n## ")
	commands := regexp.MustCompile("`lorasim ([^`]*)`").FindAllStringSubmatch(section, -1)
	if len(commands) != 8 {
		t.Fatalf("%d commands", len(commands))
	}
	t.Chdir(t.TempDir())
	begins := map[string]string{"sim": "Policy    ", "capacity": "Workers  ", "advise": "", "sweep": "Effect of ",
		"explain": "Slow     "}
	cheaper := strings.NewReplacer("--budget 8s", "--budget 60000", "--num-prompts 4000", "--num-prompts 300",
		"--num-prompts 10000", "--num-prompts 500", "--seeds 5", "--seeds 2", "--parts",
		"--parts --max-seeds 2 --seeds 2", `"ttft:500 tpot:100"`, "ttft:500")
	for _, c := range commands {
		args := strings.Fields(cheaper.Replace(c[1]))
		var out, errs bytes.Buffer
		code := run(t.Context(), args, strings.NewReader(""), &out, &errs)
		if args[0] == "capacity" { // the small budget decides nothing
			about := strings.Contains(out.String(), "\nSo far:      about ")
			if code != exitFailed || !about || nextOf(out.String()) == "" {
				t.Errorf("%s: exit code %d, %s%s", c[1], code, out.String(), errs.String())
			}
			continue
		}
		if code != exitOK || !strings.HasPrefix(out.String(), begins[args[0]]) || out.Len() == 0 ||
			strings.ContainsAny(out.String()+errs.String(), "\r\x1b") {
			t.Errorf("%s: exit code %d, %s%s", c[1], code, out.String(), errs.String())
		}
	}
}
