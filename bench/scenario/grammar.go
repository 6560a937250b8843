package scenario

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"lorasim/internal/yamlerr"
	"lorasim/router"
	"lorasim/router/admission"
	"lorasim/trace/lengths"
	"lorasim/trace/resample"
	"lorasim/trace/settings"
	"lorasim/trace/synth"
)

// grammar is the syntax of a setting whose value is a text with options of its own. In YAML such a setting may be a
// mapping or a list instead: it is turned into the text, so that both are the same scenario.
type grammar struct {
	given   []settings.Form // of a mapping; nil: it takes a list alone
	joined  string          // what joins the texts of a list, "+" or ","; "": it takes no list
	example string          // a text, for the reference

	policy bool // its forms are the policies, which a program may add to after this package is initialized
}

// forms are the forms of a mapping; nil: it takes a list alone.
func (g grammar) forms() []settings.Form {
	if g.policy {
		return router.Forms()
	}
	return g.given
}

// grammars by the last part of the key.
var grammars = map[string]grammar{
	"lora_names":     {joined: ",", example: "de,fr"},
	"lora_ranks":     {joined: ",", example: "8,16,64"},
	"priorities":     {joined: ",", example: "1,0,0"},
	"profile":        {joined: ",", example: "llama-2-7b-rtx-4090-sglang-0.5,llama-2-7b-rtx-4090-sglang-0.5*2"},
	"popularity":     {given: synth.PopularityForms(), example: "explicit:5,3,1"},
	"arrivals":       {given: synth.ArrivalsForms(), example: "gamma:4"},
	"pattern":        {given: synth.PatternForms(), joined: "+", example: "flash:200,120,15,1"},
	"locality":       {given: synth.LocalityForms(), example: "0.5,8"},
	"sessions":       {given: synth.SessionsForms(), example: "zipf:m=32,s=0.9"},
	"conversations":  {given: synth.ConversationForms(), example: "agents:turns=20,system=8000"},
	"lengths":        {given: lengths.Forms(), example: "copula:lengths.csv,rho=-0.3"},
	"resample":       {given: resample.Forms(), example: "block:60"},
	"shed":           {given: admission.ShedForms(), joined: "+", example: "ttft:500"},
	"rate_limit":     {given: admission.RateForms(), example: "2,burst=20"},
	"max_new_tokens": {given: lengths.BudgetForms(), example: "mix:256=1,1024=3"},
	"elastic":        {given: settings.FormOf[elasticSpec](), example: "min=1,max=8,rule=reactive,target=6"},
	"policy":         {example: "affinity-spill:threshold=4", policy: true},
}

// text returns the short form of a YAML node: a single value as it is, a mapping or list as the text with the same
// meaning. ok is false if the node has no such form.
func (g grammar) text(node ast.Node, anchors *settings.Anchors) (text string, ok bool, err error) {
	if node, err = anchors.Resolve(node); err != nil {
		return "", false, err
	}
	if list, is := node.(*ast.SequenceNode); is && g.joined != "" {
		return g.list(list, anchors)
	}
	if _, is := yamlerr.Pairs(node); is && g.forms() != nil {
		text, err = settings.FromYAML(node, anchors, g.forms())
		return text, err == nil, err
	}
	text, ok, err = settings.Scalar(node, anchors)
	if n, is := node.(*ast.IntegerNode); is {
		text = n.GetToken().Value // 0x10 is a name
	}
	return text, ok, err
}

func (g grammar) list(list *ast.SequenceNode, anchors *settings.Anchors) (text string, ok bool, err error) {
	if len(list.Values) == 0 {
		return "", false, errors.New("an empty list")
	}
	parts := make([]string, len(list.Values))
	for i, n := range list.Values {
		parts[i], ok, err = grammar{given: g.given, policy: g.policy}.text(n, anchors)
		switch {
		case err != nil:
			return "", false, settings.At(n.GetToken().Position.Line, "", err)
		case !ok:
			return "", false, fmt.Errorf("value %d of the list is missing", i+1)
		case strings.Contains(parts[i], g.joined):
			return "", false, fmt.Errorf("%q holds a %q, which joins the values of the list", parts[i], g.joined)
		}
	}
	return strings.Join(parts, g.joined), true, nil
}

// Text returns a YAML node's value in the form of a flag. ok is false if the node has no such form. Errors about a
// line are a [settings.LineError].
func (f Field) Text(node ast.Node, anchors *settings.Anchors) (text string, ok bool, err error) {
	if g, is := grammars[f.leaf]; is {
		return g.text(node, anchors)
	}
	return f.option.YAML(node, anchors)
}

// writeGrammars describes the settings with options of their own, in Markdown.
func writeGrammars(b *strings.Builder) {
	b.WriteString(`
## Settings with options

Some settings have options of their own. Flags take them as one text, a file also as keys and values: both are the same
scenario. The text has the options as key=value, with commas between. Options with a number in the column "place" may be
given by their value alone, in this order, before all others. Names of files are relative to the folder of the scenario.
`)
	for _, f := range fields {
		g, ok := grammars[f.leaf]
		if !ok {
			continue
		}
		nested := "[" + strings.ReplaceAll(g.example, ",", ", ") + "]"
		if g.forms() != nil {
			nested, _ = settings.Nested(g.forms(), g.example)
			if g.joined != "" {
				nested = "[" + nested + "]"
			}
		}
		fmt.Fprintf(b, "\n### `%s`\n\n```yaml\n%[1]s: %[2]s\n%[1]s: %[3]s   # the same\n```\n", f.leaf,
			settings.Quoted(g.example), nested)
		if g.forms() != nil {
			writeForms(b, g.forms())
		}
	}
}

func writeForms(b *strings.Builder, forms []settings.Form) {
	named := forms[0].Name != ""
	if named {
		b.WriteString("\n| name | what |\n|---|---|\n")
		for _, form := range forms {
			fmt.Fprintf(b, "| `%s` | %s |\n", form.Name, form.Summary)
		}
	}
	var rows strings.Builder
	for _, form := range forms {
		for _, o := range form.Fields() {
			if named {
				fmt.Fprintf(&rows, "| `%s` ", form.Name)
			}
			place, def := "", ""
			if o.Arg > 0 {
				place = fmt.Sprint(o.Arg)
			}
			if o.Default != "" {
				def = "`" + o.Default + "`"
			} else if o.Required {
				def = "required"
			}
			fmt.Fprintf(&rows, "| `%s` | %s | %s | %s | %s |\n", o.Key, o.Values(), def, o.Help, place)
		}
	}
	switch {
	case rows.Len() == 0:
		return
	case named:
		b.WriteString("\n| name | option | values | default | what | place |\n|---|---|---|---|---|---|\n")
	default:
		b.WriteString("\n| option | values | default | what | place |\n|---|---|---|---|---|\n")
	}
	b.WriteString(rows.String())
}

// Nested reports whether a YAML file may set the setting by a mapping, in place of one text.
func (f Field) Nested() bool { return grammars[f.leaf].forms() != nil }

// schema is the JSON Schema of the values that are no single text.
func (g grammar) schema() []any {
	one := settings.Schema(g.forms())
	if g.joined == "" {
		return one
	}
	list := map[string]any{"type": "array", "minItems": 1, "items": map[string]any{"anyOf": one}}
	return append(slices.Clone(one), list)
}
