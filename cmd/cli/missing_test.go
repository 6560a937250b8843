package cli

import (
	"bytes"
	"strings"
	"testing"
)

// TestMissingFiles: each command says that a file is missing in the same words, with exit code 2.
func TestMissingFiles(t *testing.T) {
	for _, args := range []string{
		"sim no.x.yaml", "sim --workload no.x.csv", "sim --profile no.x.yaml", "sweep no.x.yaml -o out",
		"sweep status no.x", "sweep run no.x", "sweep merge no.x", "advise no.x.yaml", "advise no.x.yaml --parts",
		"compare no.x.json", "capacity no.x.yaml --goodput ttft:500",
		"capacity --workload no.x.csv --goodput ttft:500", "report no.x.log -o r.html", "solve no.x.json",
		"trace import no.x.csv -o w.csv", "trace info --workload no.x.csv", "trace convert no.x.csv w.csv",
		"profile show no.x.yaml", "explore no.x.yaml", "bench 127.0.0.1:1 --workload no.x.csv",
		"sim --policy script:file=no.x.star", "sim --policy epp:file=no.x.yaml", "bench -f no.x.yaml 127.0.0.1:1",
		"sim --trace-name azure_llm --trace-path no.x.csv", "gateway 127.0.0.1:1 -f no.x.yaml",
		"worker --profile no.x.yaml", "profile check records no.x.csv --profile llama2-7b-24gb",
		"init out.yaml --workload no.x.csv", "explain no.x.log --prove",
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), strings.Fields(args), strings.NewReader(""), &out, &errs)
		name := args[strings.Index(args, "no.x"):]
		name, _, _ = strings.Cut(strings.TrimPrefix(name, "file="), " ")
		text := errs.String()
		if want := name + ": no such file or directory\n"; code != exitUsage || !strings.HasSuffix(text, want) ||
			strings.Count(text, "\n") != 1 {
			t.Errorf("%s: exit code %d, %q, expected code 2 and %q", args, code, text, want)
		}
	}
}
