package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFormats(t *testing.T) {
	work := []request{{0, 512, 7}, {1003, 513, 1}, {1020, 3, 2}}
	for _, c := range []struct {
		s    simulator
		want string
	}{
		{newLorasim(""), "id,arrival_s,adapter,prompt_tokens,output_tokens\n" +
			"0,0.000,-1,512,7\n1,1.003,-1,513,1\n2,1.020,-1,3,2\n"},
		{newDynamo("", ""), `{"timestamp": 0, "input_length": 512, "output_length": 7, "hash_ids": [0]}
{"timestamp": 1003, "input_length": 513, "output_length": 1, "hash_ids": [1, 2]}
{"timestamp": 1020, "input_length": 3, "output_length": 2, "hash_ids": [3]}
`},
	} {
		path := filepath.Join(t.TempDir(), "trace"+c.s.format())
		if err := c.s.write(path, work); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != c.want {
			t.Errorf("%s reads\n%sexpected\n%s", c.s.name(), got, c.want)
		}
	}
}

// TestGenerate expects requests in order of time. The mean lengths are those of the constants, less what the upper ends
// cut off.
func TestGenerate(t *testing.T) {
	const n, rate = 20000, 10
	list := generate(n, rate)
	prompt, output := 0, 0
	for i, r := range list {
		if i > 0 && r.at < list[i-1].at || r.prompt < 1 || r.prompt > mostPrompt ||
			r.output < 1 || r.output > mostOutput {
			t.Fatalf("request %d: %+v", i, r)
		}
		prompt, output = prompt+r.prompt, output+r.output
	}
	for name, c := range map[string][2]float64{
		"prompt":    {float64(prompt) / n, meanPrompt},
		"output":    {float64(output) / n, meanOutput},
		"gap in ms": {float64(list[n-1].at) / n, 1000. / rate},
	} {
		if c[0] < 0.9*c[1] || c[0] > 1.03*c[1] {
			t.Errorf("mean %s %.1f, expected %.1f", name, c[0], c[1])
		}
	}
}

// TestUnavailable leaves out a simulator that cannot be installed, with the reason.
func TestUnavailable(t *testing.T) {
	d := newDynamo(filepath.Join(t.TempDir(), "no-python"), t.TempDir())
	if err := d.prepare(t.Context(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "no-python -m venv") {
		t.Errorf("error %v, expected one that names the command", err)
	}
}
