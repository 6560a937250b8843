package gateway

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// keyWatch finds the keys of the object that name the adapter, and only these, wherever the pieces of the body end.
func TestKeyWatch(t *testing.T) {
	names := []struct{ spelling, name string }{{`model`, "model"}, {`\u006dodel`, "model"}, {`m\u006Fdel`, "model"},
		{`lora_path`, "lora_path"}, {`\u006c\u006f\u0072\u0061\u005f\u0070\u0061\u0074\u0068`, "lora_path"}}
	harmless := []string{``, `models`, `mode`, `lora_path `, `\"model`, `model\\`, `a\"model\"`, `é`,
		`\u006c\u006f\u0072\u0061\u005f\u0070\u0061\u0074\u0068\u0068`, strings.Repeat("model", 100)}
	values := []string{`1`, `null`, `"model"`, `"\"model\":"`, `"lora_path"`, `["model", "lora_path"]`, `"}"`, `"]"`,
		`{"model": "b", "x": [{"lora_path": 1}]}`, `[{"model": 2}, ":", ","]`, `{}`, `[]`, `"\\"`}
	rapid.Check(t, func(t *rapid.T) {
		openAI := rapid.Bool().Draw(t, "OpenAI")
		found := false
		var body strings.Builder
		for range rapid.IntRange(0, 5).Draw(t, "keys") {
			key := rapid.SampledFrom(harmless).Draw(t, "key")
			if rapid.IntRange(0, 4).Draw(t, "kind") == 0 {
				n := rapid.SampledFrom(names).Draw(t, "name")
				key, found = n.spelling, found || openAI || n.name == "lora_path"
			}
			body.WriteString(`, "` + key + `" : ` + rapid.SampledFrom(values).Draw(t, "value"))
		}
		body.WriteString("}")
		k, rest := watchKeys(openAI), body.String()
		var err error
		for err == nil && rest != "" {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			err, rest = k.look([]byte(rest[:n])), rest[n:]
		}
		if found != errors.Is(err, errNamed) {
			t.Fatalf("%s: %v, expected a name: %v", body.String(), err, found)
		}
	})
}
