package scenario

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"lorasim/trace/settings"
)

// Text returns a YAML node's value in the form of a flag. ok is false if the node has no such form. Errors about a
// line are a [settings.LineError].
func (f Field) Text(node ast.Node, anchors *settings.Anchors) (text string, ok bool, err error) {
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
		g := f.option.Grammar
		if g == nil || !g.Nests() {
			continue
		}
		nested := "[" + strings.ReplaceAll(g.Example, ",", ", ") + "]"
		if g.Forms != nil {
			nested, _ = settings.Nested(g.Forms(), g.Example)
			if g.Joined != "" {
				nested = "[" + nested + "]"
			}
		}
		fmt.Fprintf(b, "\n### `%s`\n\n```yaml\n%[1]s: %[2]s\n%[1]s: %[3]s   # the same\n```\n", f.leaf,
			settings.Quoted(g.Example), nested)
		if g.Forms != nil {
			writeForms(b, g.Forms())
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
func (f Field) Nested() bool { return f.option.Grammar != nil && f.option.Grammar.Forms != nil }
