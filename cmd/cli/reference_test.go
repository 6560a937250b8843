package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"lorasim/bench/scenario"
	"lorasim/internal/testutil"
)

// lorasim runs a command line, which must succeed, and returns what it prints.
func lorasim(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run(t.Context(), args, strings.NewReader(""), &out, &errs); code != exitOK {
		t.Fatalf("%q: exit code %d: %s", args, code, errs.String())
	}
	return out.String()
}

// The reference in docs/ is what the program says. If it is stale:
// go test ./cmd/cli -run ReferenceIsFresh -update
func TestReferenceIsFresh(t *testing.T) {
	for file, args := range map[string][]string{"reference.md": {"help", "keys"},
		"scenario.schema.json": {"help", "keys", "--schema"}} {
		testutil.Golden(t, filepath.Join("../../docs", file), lorasim(t, args...))
	}
}

func schemaOf(t *testing.T) *jsonschema.Schema {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(lorasim(t, "help", "keys", "--schema")))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("s.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("s.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// accepted says whether the schema takes a file.
func accepted(t *testing.T, s *jsonschema.Schema, text string) error {
	t.Helper()
	doc, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(v)
}

// inSection is a scenario with one setting.
func inSection(f scenario.Field, value string) (text string) {
	indent := ""
	for part := range strings.SplitSeq(f.Section, ".") {
		text += indent + part + ":\n"
		indent += "  "
	}
	return text + indent + f.Leaf() + ": " + value + "\n"
}

// The schema takes what the reader takes and no more, but for texts that have a
// parser, which it leaves to that.
func TestSchemaIsTheReader(t *testing.T) {
	s := schemaOf(t)
	for _, f := range scenario.Fields() {
		values := []string{"0", "1", "-1", "0.5", "1e12", "5e300", "true", "x", ".5x", "inf", "[1, 2]", "[]", "{a: 1}"}
		for _, v := range append(values, f.Suggest("")...) {
			v, _, _ = strings.Cut(v, "\t")
			text := fmt.Sprintf("%s: %s\n", f.Leaf(), v)
			if f.Section != "" {
				text = inSection(f, v)
			}
			if strings.HasSuffix(v, ":") || v == "{a: 1}" && f.Type() == "string" {
				continue
			}
			_, reader := scenario.Parse([]byte(text), "s.yaml")
			schema := accepted(t, s, text)
			loose := f.Type() == "string" && len(f.Suggest("")) == 0 || f.Parsed()
			if reader == nil && schema != nil && !(f.Type() == "bool" || f.Type() == "string" && v == "true") {
				t.Errorf("%s the reader takes it, the schema says %v", text, schema)
			}
			if reader != nil && schema == nil && !loose {
				t.Errorf("%s the schema takes it, the reader says %v", text, reader)
			}
		}
	}
	def := scenario.Default()
	text, err := def.YAML()
	if err != nil || accepted(t, s, string(text)) != nil {
		t.Errorf("%v, %v:\n%s", err, accepted(t, s, string(text)), text)
	}
	beyond := json.Number("1e400") // what editors make of .inf, as --print-config writes it
	for key, ok := range map[string]bool{"request_rate": true, "window": false} {
		if err := s.Validate(map[string]any{"workload": map[string]any{key: beyond}}); (err == nil) != ok {
			t.Errorf("%s: .inf: %v", key, err)
		}
	}
	files, _ := filepath.Glob("../../scenarios/*.yaml")
	if len(files) < 5 {
		t.Fatalf("%d files in scenarios/", len(files))
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || accepted(t, s, string(text)) != nil {
			t.Errorf("%s: %v, %v", file, err, accepted(t, s, string(text)))
		}
	}
	for _, text := range []string{
		"routing: {policy: {name: affinity-spill, threshold: 4}}", "workload: {lora_ranks: [8, 16]}",
		"cluster: {elastic: {max: 8, rule: schedule, times: {600: 8, 1800: 2}}}", "workload: {locality: {p: 0.5}}",
		"workload: {pattern: [{name: flash, at: 1, duration: 2, factor: 3}, {name: constant}]}",
		"set: {request_rate: {from: 1, to: 8, factor: 2}, pattern: [{name: constant}, \"flash:1,2,3\"]}",
		"policies: [static, {name: affinity-spill, threshold: 4}]",
		"set: {num_workers: [2, {from: 4, to: 8}], elastic: {max: 8, target: 6}}",
		"workload: {lengths: {name: table, file: t.csv}, popularity: {name: explicit, weights: [1, 2]}}",
	} {
		if err := accepted(t, s, text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"sead: 1", "workload: {policy: static}", "scenario: {seed: 1}\nsets: {}",
		"routing: {policy: {name: hash, c: 2}}", "routing: {policy: {threshold: 4}}", "cluster: {elastic: {min: 1}}",
		"routing: {policy: {name: affinity-spill, threshold: 0}}", "workload: {pattern: [{name: flash, at: 1}]}",
		"set: {num_workers: {a: 1}}", "set: {drift: {from: 1}}", "policies: [{name: none}]",
		"scenario: {seed: -1}", "seeds: 0", "set: {workers: 1}"} {
		if accepted(t, s, text) == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
