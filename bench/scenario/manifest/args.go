package manifest

import (
	"slices"
	"strconv"
	"strings"

	"github.com/kballard/go-shellquote"
)

// An arg is a word of a command line with the value of the manifest that holds it.
type arg struct {
	text string
	from *node
}

// words returns the command line of a container: command and args. A shell's script is split as a shell does.
func words(c *node) (list []arg) {
	for _, key := range []string{"command", "args"} {
		for _, n := range c.list(key) {
			list = append(list, arg{n.text, n})
		}
		if n := c.get(key); n != nil && n.scalar {
			list = append(list, arg{n.text, n})
		}
	}
	var split []arg
	for _, a := range list {
		if !strings.ContainsAny(a.text, " \t\n") {
			split = append(split, a)
			continue
		}
		// a script, or several words in one argument as some charts write them
		script := strings.NewReplacer("\\\n", " ", "\n", " ", ";", " ; ", "&&", " ; ").Replace(a.text)
		parts, err := shellquote.Split(script)
		if err != nil {
			parts = strings.Fields(script)
		}
		if len(parts) > 1 && strings.HasPrefix(parts[0], "{") {
			parts = []string{a.text} // JSON
		}
		for _, p := range parts {
			split = append(split, arg{p, a.from})
		}
	}
	return split
}

// engineOf recognizes the engine of a container by its command line, else by its image.
func engineOf(image string, line []arg) string {
	for _, a := range line {
		switch t := a.text; {
		case strings.HasPrefix(t, "sglang.launch_server"), strings.HasSuffix(t, "sglang"), t == "sglang-router":
			return sglang
		case t == "vllm", strings.HasSuffix(t, "/vllm"), strings.HasPrefix(t, "vllm.entrypoints"):
			return vllm
		}
	}
	name := strings.ToLower(imageName(image))
	switch {
	case strings.Contains(name, "sglang"):
		return sglang
	case strings.Contains(name, "vllm-openai"), strings.HasSuffix(name, "/vllm"), strings.Contains(name, "llm-d-cuda"),
		strings.HasSuffix(name, "/llm-d"):
		return vllm
	}
	return ""
}

// imageName is an image without tag and digest.
func imageName(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		image = image[:i]
	}
	return image
}

// versionOf returns the version in an image's tag, such as 0.19.0; "": the tag states none.
func versionOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	tag := strings.TrimPrefix(image, imageName(image))
	tag = strings.TrimPrefix(strings.TrimPrefix(tag, ":"), "v")
	end := strings.IndexFunc(tag, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if end < 0 {
		end = len(tag)
	}
	v := strings.Trim(tag[:end], ".")
	if !strings.Contains(v, ".") || strings.Count(v, ".") > 3 {
		return "" // a date, or latest
	}
	return v
}

// The flags of the engines that matter here, by their own names (vllm/engine/arg_utils.py, sglang/srt/server_args.py).
var flagNames = map[string][]string{
	vllm: {"model", "served-model-name", "enable-lora", "no-enable-lora", "max-loras", "max-lora-rank", "max-cpu-loras",
		"lora-modules", "max-num-seqs", "max-num-batched-tokens", "max-model-len", "gpu-memory-utilization",
		"tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size", "enable-prefix-caching",
		"no-enable-prefix-caching", "block-size", "kv-cache-dtype", "quantization", "dtype", "enforce-eager",
		"scheduling-policy", "max-num-queued-reqs", "num-gpu-blocks-override", "no-async-scheduling",
		"async-scheduling", "max-num-partial-prefills", "max-long-partial-prefills", "max-logprobs",
		"max-seq-len-to-capture", "model-impl", "model-loader-extra-config", "specialize-active-lora",
		"no-specialize-active-lora"},
	sglang: {"model-path", "model", "served-model-name", "enable-lora", "max-loras-per-batch", "max-lora-rank",
		"max-loaded-loras", "lora-paths", "max-running-requests", "chunked-prefill-size", "max-prefill-tokens",
		"context-length", "mem-fraction-static", "tp", "tp-size", "tensor-parallel-size", "dp", "dp-size",
		"disable-radix-cache", "page-size", "schedule-policy", "max-queued-requests", "lora-backend",
		"lora-eviction-policy", "max-total-tokens", "quantization", "kv-cache-dtype", "enable-mixed-chunk",
		"disable-overlap-schedule", "lora-target-modules", "max-lora-chunk-size", "model-loader-extra-config",
		"enable-lora-overlap-loading"},
}

var short = map[string]string{"-tp": "tensor-parallel-size", "-pp": "pipeline-parallel-size",
	"-dp": "data-parallel-size", "-q": "quantization", "-O": "compilation-config"}

// A flag is a flag of an engine with its values.
type flag struct {
	values []arg
	at     *node // that holds the flag
}

// flags parses the command line of an engine. Flags may be written with _ and shortened, as Python's argparse allows.
func flags(engine string, line []arg) map[string]flag {
	set := map[string]flag{}
	name := ""
	for _, a := range line {
		key, value, joined := strings.Cut(a.text, "=")
		switch {
		case a.text == ";":
			name = ""
		case strings.HasPrefix(key, "--"), short[key] != "":
			name = fullName(engine, key)
			f := flag{at: a.from}
			if joined {
				f.values = []arg{{value, a.from}}
			}
			set[name] = f
			if joined && name != "lora-modules" && name != "lora-paths" {
				name = ""
			}
		case name != "":
			f := set[name]
			f.values = append(f.values, a)
			set[name] = f
		}
	}
	return set
}

// fullName returns the whole name of a flag that may be shortened.
func fullName(engine, key string) string {
	if long := short[key]; long != "" {
		return long
	}
	key = strings.ReplaceAll(strings.TrimLeft(key, "-"), "_", "-")
	names := flagNames[engine]
	if slices.Contains(names, key) {
		return key
	}
	var matches []string
	for _, n := range names {
		if strings.HasPrefix(n, key) {
			matches = append(matches, n)
		}
	}
	if len(matches) == 1 && len(key) >= 5 {
		return matches[0]
	}
	return key
}

// positional returns the model of "vllm serve MODEL".
func positional(line []arg) *arg {
	for i, a := range line {
		if a.text == "serve" && i+1 < len(line) && !strings.HasPrefix(line[i+1].text, "-") {
			return &line[i+1]
		}
	}
	return nil
}

// value returns the first value of a flag; "" without one.
func (s *Server) value(names ...string) string {
	if f, _ := s.flag(names...); len(f.values) > 0 {
		return f.values[0].text
	}
	return ""
}

func (s *Server) flag(names ...string) (flag, bool) {
	for _, n := range names {
		if f, ok := s.args[n]; ok {
			return f, true
		}
	}
	return flag{}, false
}

// on reports whether a flag is given, and not with the value false.
func (s *Server) on(name string) bool {
	f, given := s.flag(name)
	return given && (len(f.values) == 0 || !strings.EqualFold(f.values[0].text, "false"))
}

// number returns the whole number of a flag, or other without such a flag.
func (s *Server) number(other int, names ...string) int {
	n, err := strconv.Atoi(s.value(names...))
	if err != nil {
		return other
	}
	return n
}
