package scenario

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"lorasim/internal/bounds"
	"lorasim/router"
	"lorasim/sim/profile"
)

// sections are what the parts of a scenario are about, in order.
var sections = []struct{ key, about string }{
	{"", "of the scenario as a whole"},
	{"workload", "which requests come when"},
	{"cluster", "what the workers are; zero and empty values are the profile's"},
	{"routing", "which policy sends requests where"},
	{"client", "how requests are sent"},
}

// WriteReference writes a page of every setting, in Markdown.
func WriteReference(w io.Writer) error {
	var b strings.Builder
	for _, s := range sections {
		title := "Top level"
		if s.key != "" {
			title = "`" + s.key + "`"
		}
		fmt.Fprintf(&b, "\n## %s: %s\n\n| key | values | default | what | flag |\n|---|---|---|---|---|\n", title, s.about)
		for _, f := range fields {
			if f.Section != s.key {
				continue
			}
			def, flag := "", ""
			if text := f.Get(&defaults); text != "" {
				def = "`" + text + "`"
			}
			if f.Flag != "" {
				flag = "`--" + f.Flag + "`"
			}
			row := []string{"`" + f.leaf + "`", f.values(), def, f.Help, flag}
			for i := range row {
				row[i] = strings.ReplaceAll(row[i], "|", `\|`)
			}
			fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// values are what the setting takes, for people.
func (f Field) values() string {
	if words := f.enum(); words != nil {
		return "`" + strings.Join(words, "`, `") + "`"
	}
	text := map[string]string{"int": "whole number", "float": "number", "floats": "number or list", "bool": "`true`, `false`", "string": "text"}[f.Type()]
	if f.Type() != "string" && f.Type() != "bool" {
		text += " " + bounds.MustParse(f.check).String()
	}
	if f.unit != "" && f.unit != "-" {
		text = strings.TrimSpace(text) + "; " + f.unit
	}
	return strings.TrimSpace(text)
}

// enum are the words that the setting takes, nil where there are others, too.
func (f Field) enum() []string {
	words, ok := strings.CutPrefix(f.check, "oneof ")
	if !ok {
		return nil
	}
	return strings.Fields(words)
}

// forms are what the values of settings with a parser begin with; a : or = at the
// end calls for more.
var forms = map[string]string{
	"lora_ranks":     "8,16,32,64 drawn:",
	"priorities":     "0 1,0,0,0",
	"shed":           "ttft: queue:",
	"rate_limit":     "1 1,burst=",
	"popularity":     "zipf zipf: uniform powerlaw: maf2 explicit:",
	"arrivals":       "exponential gamma: weibull: deterministic bursty smooth total-exponential total-gamma: total-weibull: total-deterministic",
	"pattern":        "constant on-off: diurnal: flash:",
	"sessions":       "zipf:m= copy:m=",
	"lengths":        "auto sharegpt azure-conv azure-code sharegpt-llama3 sharegpt-qwen2 measured-rate4 measured-stride random constant: lognormal: copula: table: none",
	"max_new_tokens": "auto trace exact uniform: lognormal:mean= mix: 1024 x1.5",
}

// Suggest lists values of the setting to choose from, or what they begin with,
// each with a tab and a word on it where there is one. typed is what is there.
func (f Field) Suggest(typed string) (list []string) {
	switch {
	case f.enum() != nil:
		return slices.Clone(f.enum())
	case f.Type() == "bool":
		return []string{"true", "false"}
	case f.leaf == "profile":
		return append(profile.Names(), profile.AnalyticPrefix)
	case f.leaf != "policy":
		return strings.Fields(forms[f.leaf])
	}
	name, _, options := strings.Cut(typed, ":")
	given := typed[:strings.LastIndexAny(typed, ":,")+1]
	for _, d := range router.List() {
		if !options {
			list = append(list, d.Name+"\t"+d.Summary)
		} else if d.Name == name {
			for _, o := range d.Options {
				list = append(list, given+o.Name+"=\t"+o.Doc)
			}
		}
	}
	return list
}

// Schema is a JSON Schema of a scenario, for editors. It is as strict as the
// reader where that is about types, words and bounds; what a parser takes is any
// text there. Numbers may also be written as texts in a file, not in the schema.
func Schema() map[string]any {
	object := func(about string) map[string]any {
		return map[string]any{"type": "object", "description": about, "additionalProperties": false, "properties": map[string]any{}}
	}
	root := object("a run")
	parts := map[string]map[string]any{"": root}
	for _, s := range sections[1:] {
		parts[s.key] = object(s.about)
		root["properties"].(map[string]any)[s.key] = parts[s.key]
	}
	for _, f := range fields {
		parts[f.Section]["properties"].(map[string]any)[f.leaf] = f.schema()
	}
	return root
}

func (f Field) schema() map[string]any {
	s := map[string]any{}
	switch f.Type() {
	case "bool":
		s["type"] = "boolean"
	case "string":
		s["type"] = []string{"string", "number"} // 1024, where a text may begin with a number
		if words := f.enum(); words != nil {
			if f.def == "" {
				words = append(slices.Clone(words), "")
			}
			delete(s, "type")
			s["enum"] = words
		}
	case "floats":
		number := bounds.MustParse(f.check).Schema("number")
		s["anyOf"] = []any{number, map[string]any{"type": "array", "minItems": 1, "items": number}, map[string]any{"type": "string"}}
	default:
		s = bounds.MustParse(f.check).Schema(map[string]string{"int": "integer", "float": "number"}[f.Type()])
	}
	about := f.Help
	if f.unit != "" && f.unit != "-" {
		about += " [" + f.unit + "]"
	}
	s["description"] = strings.TrimSpace(about)
	if f.def != "" {
		s["default"] = f.value(&defaults)
	}
	return s
}

// Parsed says whether a parser decides which texts the setting takes.
func (f Field) Parsed() bool { return f.check == "parse" }
