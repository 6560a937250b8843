package fleet

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lorasim/internal/testutil"
)

func TestReadLoRAs(t *testing.T) {
	got, err := ReadLoRAs(strings.NewReader("# ours\n\nchat=/a/chat\n code = s3://b/c=d \r\n"), "f")
	if want := []LoRA{{"chat", "/a/chat", 0}, {"code", "s3://b/c=d", 0}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; expected %v", got, err, want)
	}
	for text, want := range map[string]string{
		"":             "f: no adapter, expected lines NAME=PATH",
		"# a=b\n":      "f: no adapter",
		"a=b\nc\n":     `f:2: "c": expected NAME=PATH`,
		"#\n\n=x":      "f:3: ",
		"a=\n":         "f:1: ",
		"a=b\n  = \n#": "f:2: ",
	} {
		if got, err := ReadLoRAs(strings.NewReader(text), "f"); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, %v; expected %s", text, got, err, want)
		}
	}
}

func FuzzReadLoRAs(f *testing.F) {
	f.Add("a=b\n#c\n\n d = e=f ")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := ReadLoRAs(strings.NewReader(text), "f")
		if err != nil && !strings.HasPrefix(err.Error(), "f:") || err == nil && len(list) == 0 {
			t.Fatal(list, err)
		}
		for _, a := range list {
			if again, err := ParseLoRA(a.Name + "=" + a.Path); err != nil || again != a {
				t.Errorf("%+v is read back as %+v, %v", a, again, err)
			}
		}
	})
}

func FuzzParsePEFT(f *testing.F) {
	f.Add([]byte(`{"r": 8, "rank_pattern": {"q_proj": 16}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if rank, err := parsePEFT(data, "f"); err == nil && rank < 1 {
			t.Error(rank)
		}
	})
}

func TestFindLoRAs(t *testing.T) {
	dir := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		testutil.Write(t, filepath.Join(dir, path), text)
	}
	_, err := FindLoRAs(dir)
	testutil.ExpectError(t, err, "no adapter, expected subfolders with adapter_config.json")
	write("code/adapter_config.json", `{"peft_type": "LORA", "r": 8, "rank_pattern": {"q_proj": 32, "k_proj": 4}}`)
	write("chat/adapter_config.json", `{"r": 16, "lora_alpha": 32}`)
	write("tiny/adapter_config.json", `{"r": 1}`)
	write("notes/README", "no adapter")
	write("file", "no folder")
	got, err := FindLoRAs(dir)
	if want := []LoRA{{"chat", dir + "/chat", 16}, {"code", dir + "/code", 32},
		{"tiny", dir + "/tiny", 1}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; expected %v", got, err, want)
	}
	t.Chdir(filepath.Dir(dir))
	if got, err = FindLoRAs(filepath.Base(dir)); err != nil || got[0].Path != dir+"/chat" {
		t.Errorf("by a relative path: %v, %v", got, err)
	}
	for text, want := range map[string]string{`{"r": 0}`: "expected >= 1",
		`{`: "expected the configuration of a PEFT adapter", `{"r": "8"}`: "expected the configuration"} {
		write("bad/adapter_config.json", text)
		_, err := FindLoRAs(dir)
		testutil.ExpectError(t, err, dir+"/bad/adapter_config.json: ", want)
	}
	if _, err := FindLoRAs(filepath.Join(dir, "none")); err == nil {
		t.Error("no error for a missing folder")
	}
}
