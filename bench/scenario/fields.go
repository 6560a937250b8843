package scenario

import (
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"

	"lorasim/internal/suggest"
	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/trace/azure"
	"lorasim/trace/lengths"
	"lorasim/trace/resample"
	"lorasim/trace/settings"
	"lorasim/trace/synth"
)

// Field is one setting of a scenario.
type Field struct {
	Key     string // path in the YAML file: "workload.num_prompts"
	Flag    string // name on the command line: "num-prompts"; "": none
	Section string // "workload", ...; "": top level
	Help    string // at most two lines of a command's help
	More    string // what the reference adds to it; "": nothing
	Group   string // heading in a command's help; "": that of the scenario as a whole

	// option has the other tags (package settings). Its check may also be "parse": what the setting's parser takes.
	option settings.Field
	leaf   string
	index  []int
}

// Leaf is the last part of the key: "num_prompts".
func (f Field) Leaf() string { return f.leaf }

// Unit is what the value counts; "": nothing.
func (f Field) Unit() string { return strings.TrimSuffix(f.option.Unit, "-") }

// Values words what the setting takes, with its unit, in Markdown.
func (f Field) Values() string { return f.option.Values() }

var (
	fields   = fieldsOf(reflect.TypeFor[Scenario](), "", nil)
	defaults = ofDefaults()
)

// Default is the run without arguments: a skewed, bursty load on four workers
// that hold a quarter of the adapters each in their GPU slots.
func Default() Scenario {
	s := defaults
	s.Workload.TraceCV = slices.Clone(s.Workload.TraceCV)
	return s
}

func ofDefaults() (s Scenario) {
	for _, f := range fields {
		if f.option.Default != "" {
			must(s, f.Set(&s, f.option.Default))
		}
	}
	return s
}

// Fields lists every setting in the order of the struct. It is not to be changed.
func Fields() []Field { return fields }

// fieldsOf lists the settings of a struct. The tag group begins a group, which goes on until the next such tag.
func fieldsOf(t reflect.Type, section string, index []int) (fs []Field) {
	group := ""
	for i := range t.NumField() {
		sf := t.Field(i)
		name, _, _ := strings.Cut(sf.Tag.Get("yaml"), ",")
		at := append(slices.Clip(index), i)
		if sf.Type.Kind() == reflect.Struct {
			fs = append(fs, fieldsOf(sf.Type, name, at)...)
			continue
		}
		f := Field{Key: name, leaf: name, Flag: strings.ReplaceAll(name, "_", "-"), Section: section,
			Help: sf.Tag.Get("help"), More: sf.Tag.Get("more"), option: settings.NewField(sf), index: at}
		if section != "" {
			f.Key = section + "." + name
		}
		if g := sf.Tag.Get("group"); g != "" {
			group = g
		}
		f.Group = group
		if flag, ok := sf.Tag.Lookup("flag"); ok {
			f.Flag = strings.TrimPrefix(flag, "-")
		}
		fs = append(fs, f)
	}
	return fs
}

// Find returns the setting with the given key: its path, its last part, or its
// flag name.
func Find(key string) (Field, error) {
	for i := range fields {
		if f := &fields[i]; key == f.Key || key == f.leaf || key == f.Flag && key != "" {
			return *f, nil
		}
	}
	known := make([]string, len(fields))
	for i, f := range fields {
		known[i] = f.Leaf()
		if strings.Contains(key, ".") {
			known[i] = f.Key
		}
	}
	return Field{}, suggest.Unknown("key", key, known)
}

// Label is the last part of a setting's key with its unit, for axes and heads of
// tables: "migration_interval (s)".
func Label(key string) string {
	f, err := Find(key)
	if err != nil || f.option.Unit == "" || f.option.Unit == "-" {
		return key
	}
	return f.Leaf() + " (" + f.option.Unit + ")"
}

func (f Field) of(s *Scenario) reflect.Value { return reflect.ValueOf(s).Elem().FieldByIndex(f.index) }

// Get returns a setting in the form that Set takes.
func (f Field) Get(s *Scenario) string {
	switch x := f.of(s).Interface().(type) {
	case float64:
		return settings.Format(x)
	case []float64:
		parts := make([]string, len(x))
		for i, e := range x {
			parts[i] = settings.Format(e)
		}
		return strings.Join(parts, ",")
	default:
		return fmt.Sprint(x)
	}
}

// value returns a setting as JSON knows it; an infinite number is its text.
func (f Field) value(s *Scenario) any {
	v := f.of(s)
	switch {
	case v.CanInt():
		return v.Int()
	case v.CanUint():
		return int64(v.Uint())
	case v.Kind() == reflect.Bool:
		return v.Bool()
	case v.CanFloat() && !math.IsInf(v.Float(), 0):
		return v.Float()
	}
	return f.Get(s)
}

// Set changes one setting, given by any name that Find knows, to a value in
// the form of a flag.
func (s *Scenario) Set(key, value string) error {
	f, err := Find(key)
	if err != nil {
		return err
	}
	return f.Set(s, value)
}

// Set changes the setting in a scenario to a value in the form of a flag.
func (f Field) Set(s *Scenario, value string) error {
	v, err := f.parse(value)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Key, err)
	}
	f.of(s).Set(v)
	return nil
}

// Check says what is wrong with a value in the form of a flag, or nil.
func (f Field) Check(text string) error {
	_, err := f.parse(text)
	return err
}

// checkValues finds a setting that cannot have its value: those that were set by
// flags and files have been checked, others not.
func (s *Scenario) checkValues() error {
	for _, f := range fields {
		if err := f.Check(f.Get(s)); err != nil {
			return fmt.Errorf("%s: %w", f.Key, err)
		}
	}
	return nil
}

// Fault is an error of the scenario itself, not of its files or its run.
type Fault struct{ err error }

func (f *Fault) Error() string { return f.err.Error() }
func (f *Fault) Unwrap() error { return f.err }

func fault(err error) error {
	if err == nil {
		return nil
	}
	return &Fault{err}
}

// Type is the kind of value, as flags name it.
func (f Field) Type() string { return types[f.option.Type.Kind()] }

var types = map[reflect.Kind]string{reflect.Bool: "bool", reflect.Int: "int", reflect.Int64: "int",
	reflect.Uint64:  "int",
	reflect.Float64: "float", reflect.Slice: "floats", reflect.String: "string"}

// parse turns a text into a value of the setting. Errors tell what was expected.
func (f Field) parse(text string) (reflect.Value, error) {
	if f.leaf == "policy" {
		text = router.Canonical(text)
	}
	v := reflect.New(f.option.Type).Elem()
	err := f.option.Parse(text, v)
	if err == nil && f.Parsed() && (text != "" || f.option.Default != "") {
		err = parsers[f.leaf](text)
	}
	return v, err
}

// parsers check the settings whose tag says so. Empty texts never get there
// where they are the default.
var parsers = map[string]func(string) error{
	"engine":           errorOf(profile.ParseServing),
	"lora_names":       errorOf(parseNames),
	"lora_ranks":       errorOf(synth.ParseRanks),
	"priorities":       errorOf(parsePriorities),
	"popularity":       errorOf(synth.ParsePopularity),
	"arrivals":         errorOf(synth.ParseArrivals),
	"pattern":          errorOf(synth.ParsePattern),
	"locality":         errorOf(synth.ParseLocality),
	"sessions":         errorOf(synth.ParseSessions),
	"conversations":    errorOf(synth.ParseConversations),
	"trace_start_time": errorOf(azure.ParseInstant),
	"trace_end_time":   errorOf(azure.ParseInstant),
	"resample":         errorOf(resample.Parse),
	"outages":          errorOf(parseOutages),
	"elastic":          errorOf(parseElastic),
	"warmup":           errorOf(parseWarmup),
	"shed":             router.CheckShed,
	"rate_limit":       router.CheckRate,
	"policy":           router.CheckSpec,
	"max_new_tokens": func(text string) error {
		if text == "auto" || text == budgetOfTrace {
			return nil
		}
		return errorOf(lengths.ParseBudget)(text)
	},
	"lengths": func(text string) error {
		if slices.Contains([]string{"auto", "random", NoLengths}, text) {
			return nil
		}
		return lengths.Check(text)
	},
	"trace_histogram": func(text string) error {
		if strings.HasSuffix(text, ".json") {
			return nil
		}
		counts, err := parseHistogram(text)
		if err == nil && !slices.ContainsFunc(slices.Concat(counts...), func(n int64) bool { return n > 0 }) {
			err = fmt.Errorf("%q holds no requests", text)
		}
		return err
	},
}

func errorOf[T any](parse func(string) (T, error)) func(string) error {
	return func(s string) error { _, err := parse(s); return err }
}

// sections are what the parts of a scenario are about, in order.
var sections = []struct{ key, about string }{
	{"", "of the scenario as a whole"},
	{"workload", "which requests come when"},
	{"cluster", "what the workers are; zero and empty values mean the profile's"},
	{"routing", "which policy sends requests where"},
	{"client", "how requests are sent"},
}

// what is the text of the reference.
func (f Field) what() string {
	if f.More == "" {
		return f.Help
	}
	return f.Help + ". " + f.More
}

// WriteReference writes a page of every setting, in Markdown.
func WriteReference(w io.Writer) error {
	var b strings.Builder
	for _, s := range sections {
		title := "Top level"
		if s.key != "" {
			title = "`" + s.key + "`"
		}
		fmt.Fprintf(&b, "\n## %s: %s\n\n| key | values | default | what | flag |\n|---|---|---|---|---|\n", title,
			s.about)
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
			row := []string{"`" + f.leaf + "`", f.option.Values(), def, f.what(), flag}
			for i := range row {
				row[i] = strings.ReplaceAll(row[i], "|", `\|`)
			}
			fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		}
	}
	writeGrammars(&b)
	_, err := io.WriteString(w, b.String())
	return err
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
	case f.option.Enum() != nil:
		return slices.Clone(f.option.Enum())
	case f.Type() == "bool":
		return []string{"true", "false"}
	case f.leaf == "profile":
		return append(profile.Names(), profile.AnalyticPrefix)
	case f.leaf == "engine":
		return profile.Servings()
	case f.leaf != "policy":
		return strings.Fields(forms[f.leaf])
	}
	name, _, options := strings.Cut(typed, ":")
	given := typed[:strings.LastIndexAny(typed, ":,")+1]
	option, _, value := strings.Cut(typed[len(given):], "=")
	var aliases []string
	for _, d := range router.List() {
		switch {
		case !options:
			own := d.Name
			if router.CheckSpec(own) != nil {
				own += ":" // some option must be given
			}
			list = append(list, own+"\t"+d.Summary)
			for _, a := range d.Aliases {
				aliases = append(aliases, a+"\talias of "+d.Name)
			}
		case d.Name == name || slices.Contains(d.Aliases, name):
			for _, o := range d.Options {
				if !value {
					list = append(list, given+o.Name+"=\t"+o.Doc)
				} else if o.Name == option {
					for _, word := range o.Words {
						list = append(list, given+option+"="+word)
					}
				}
			}
		}
	}
	return append(list, aliases...)
}

// Schema is a JSON Schema of a scenario, for editors. It is as strict as the
// reader where that is about types, words and bounds; what a parser takes is any
// text there. Numbers may also be written as texts in a file, not in the schema.
func Schema() map[string]any {
	object := func(about string) map[string]any {
		return map[string]any{"type": "object", "description": about, "additionalProperties": false,
			"properties": map[string]any{}}
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
	s := f.option.Schema()
	if g, ok := grammars[f.leaf]; ok {
		delete(s, "type")
		s["anyOf"] = g.schema()
	}
	return s
}

// Parsed says whether a parser decides which texts the setting takes.
func (f Field) Parsed() bool { return f.option.Check == "parse" }
