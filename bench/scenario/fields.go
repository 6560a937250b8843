package scenario

import (
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"

	"lorasim/internal/format"
	"lorasim/internal/suggest"
	"lorasim/sim/profile"
	"lorasim/trace/settings"
)

// A Field is one setting of a scenario.
type Field struct {
	Key     string // path in the YAML file: "workload.num_prompts"
	Flag    string // name on the command line: "num-prompts"; "": none
	Section string // "workload", ...; "": top level
	Help    string // help text of a command, at most two lines
	More    string // text that the reference adds to Help; "": nothing
	Group   string // heading in a command's help; "": the heading for the whole scenario

	option settings.Field // has the other tags
	leaf   string
	index  []int

	only string    // the engine that alone has the key; "": all
	own  []ownName // what engines call the key, if they have a name of their own for it
}

// Leaf returns the last part of the key: "num_prompts".
func (f Field) Leaf() string { return f.leaf }

// Unit returns the unit of the value; "": none.
func (f Field) Unit() string { return strings.TrimSuffix(f.option.Unit, "-") }

// Values describes the allowed values with their unit, in Markdown.
func (f Field) Values() string { return f.option.Values() }

var (
	fields   = fieldsOf(reflect.TypeFor[Scenario](), "", nil)
	defaults = ofDefaults()
)

// Default returns the scenario of a run without arguments: a skewed, bursty load on four workers. The GPU slots of
// each worker hold a quarter of the adapters.
func Default() Scenario {
	return defaults
}

func ofDefaults() (s Scenario) {
	for _, f := range fields {
		if f.option.Default != "" {
			if err := f.Set(&s, f.option.Default); err != nil {
				panic(err) // a fault of the tags
			}
		}
	}
	return s
}

// Fields lists every setting in the order of the struct. Callers must not change the slice.
func Fields() []Field { return fields }

// fieldsOf lists the settings of a struct. The tag group begins a group, which goes on until the next such tag.
func fieldsOf(t reflect.Type, section string, index []int) (fs []Field) {
	group := ""
	for i := range t.NumField() {
		sf := t.Field(i)
		if sf.Tag.Get("yaml") == "-" || !sf.IsExported() {
			continue
		}
		name, _, _ := strings.Cut(sf.Tag.Get("yaml"), ",")
		at := append(slices.Clip(index), i)
		option := settings.NewField(sf)
		if option.Kind() == reflect.Struct {
			fs = append(fs, fieldsOf(sf.Type, strings.TrimPrefix(section+"."+name, "."), at)...)
			continue
		}
		f := Field{Key: name, leaf: name, Flag: strings.ReplaceAll(name, "_", "-"), Section: section,
			Help: sf.Tag.Get("help"), More: sf.Tag.Get("more"), option: option, index: at}
		if section != "" {
			f.Key = section + "." + name
		}
		if g := sf.Tag.Get("group"); g != "" {
			group = g
		}
		f.Group = group
		if flag, ok := sf.Tag.Lookup("flag"); ok {
			f.Flag = strings.TrimPrefix(flag, "-")
		} else if section == EngineSection {
			f.Flag = "" // see EngineArgs
		}
		f.only = sf.Tag.Get("of")
		for _, engine := range []string{profile.SchedulerSGLang, profile.SchedulerVLLM} {
			if own := sf.Tag.Get(engine); own != "" {
				f.own = append(f.own, ownName{engine, own})
			}
		}
		fs = append(fs, f)
	}
	return fs
}

// Find returns the setting with the given key. The key is the full path, the last part of the path, or the flag name.
func Find(key string) (Field, error) {
	for i := range fields {
		if f := &fields[i]; key == f.Key || key == f.leaf || key == f.Flag && key != "" {
			return *f, nil
		}
	}
	if now := Renamed(key); now != "" {
		return Field{}, fmt.Errorf("unknown key %q: %s", key, now)
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

// renamed says what settings of older versions are now.
var renamed = map[string]string{
	"starvation_s":               "it is lora_drain_wait_threshold now, off by default as in sglang",
	"burstiness":                 "arrivals vllm:SHAPE is vLLM's burstiness, and arrivals gamma:CV any other",
	"trace_cv":                   "it is arrivals now, as in gamma:CV or gamma:CV,CV,...",
	"trace_arrival_distribution": "it is arrivals now, as in pareto:CV",
	"time_scale":                 "rate_scale 2 is what time_scale 0.5 was, trace_speed 2 with function traces whose rates are replayed",
}

// Renamed says what a setting of older versions is now, by its key or flag; "": no setting had the name.
func Renamed(name string) string {
	return renamed[strings.ReplaceAll(name[strings.LastIndexByte(name, '.')+1:], "-", "_")]
}

// Label returns the last part of a setting's key with its unit, for axes and table headings: "migration_interval (s)".
func Label(key string) string {
	f, err := Find(key)
	if err != nil || f.option.Unit == "" || f.option.Unit == "-" {
		return key
	}
	return f.Leaf() + " (" + f.option.Unit + ")"
}

func (f Field) of(s *Scenario) reflect.Value { return reflect.ValueOf(s).Elem().FieldByIndex(f.index) }

// Get returns the value of the setting in the form that Set accepts; "": it is not given.
func (f Field) Get(s *Scenario) string {
	x := f.of(s).Interface()
	if number, ok := x.(float64); ok {
		return settings.Format(number)
	}
	return fmt.Sprint(x)
}

// value returns a setting in its JSON type; an infinite number is a text. nil: a number that is not given.
func (f Field) value(s *Scenario) any {
	switch x := f.of(s).Interface().(type) {
	case settings.Optional[int]:
		return given(x)
	case settings.Optional[int64]:
		return given(x)
	}
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

func given[T int | int64](x settings.Optional[T]) any {
	if !x.Given {
		return nil
	}
	return int64(x.Value)
}

// Set sets one setting to a value in the form of a flag. The key is any that [Find] accepts.
func (s *Scenario) Set(key, value string) error {
	f, err := Find(key)
	if err != nil {
		return err
	}
	return f.Set(s, value)
}

// Set sets the setting of a scenario to a value in the form of a flag.
func (f Field) Set(s *Scenario, value string) error {
	v, err := f.parse(value)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Key, err)
	}
	f.of(s).Set(v)
	return nil
}

// Check returns an error if a value, in the form of a flag, is not allowed.
func (f Field) Check(text string) error {
	_, err := f.parse(text)
	return err
}

// parse converts a text to a value of the setting. Errors state the expected form.
func (f Field) parse(text string) (reflect.Value, error) {
	v := reflect.New(f.option.Type).Elem()
	if text == "" && f.option.Default == "" && f.option.Kind() == reflect.String && f.option.Enum() == nil {
		return v, nil // not given
	}
	err := f.option.Parse(text, v)
	if err != nil && text == "0" && f.optional() {
		err = fmt.Errorf("%w; leave %s out for its default", err, f.leaf)
	}
	return v, err
}

// optional reports whether the setting is a number that may be left out.
func (f Field) optional() bool {
	return f.option.Type.Kind() == reflect.Struct && f.option.Grammar == nil
}

// checkValues returns an error for a number or word that is not allowed. Values from flags and files have been checked
// before; numbers and words that Go code sets have not.
func (s *Scenario) checkValues() error {
	own := Default()
	for _, f := range fields {
		if f.option.Grammar != nil || f.optional() && f.of(s).IsZero() {
			continue
		}
		if err := f.Set(&own, f.Get(s)); err != nil {
			return err
		}
	}
	return nil
}

// A Fault is an error in the scenario itself, not in its files or its run.
type Fault struct{ err error }

func (f *Fault) Error() string { return f.err.Error() }
func (f *Fault) Unwrap() error { return f.err }

func fault(err error) error {
	if err == nil {
		return nil
	}
	return &Fault{err}
}

// Type returns the type of the value as flags name it: bool, int, float or string.
func (f Field) Type() string { return types[f.option.Kind()] }

var types = map[reflect.Kind]string{reflect.Bool: "bool", reflect.Int: "int", reflect.Int64: "int",
	reflect.Uint64:  "int",
	reflect.Float64: "float", reflect.String: "string"}

// sections are the sections of a scenario and their subjects, in order.
var sections = []struct{ key, about string }{
	{"", "of the scenario as a whole"},
	{"workload", "which requests come when"},
	{"cluster", "what the workers are; zero and empty values mean the profile's"},
	{EngineSection, "the engine of the workers; on the command line `--engine-args KEY=VALUE,...`"},
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

// WriteReference writes a reference page of every setting, in Markdown.
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
			} else if f.Section == EngineSection {
				flag = "`--engine-args`"
			}
			key := "`" + f.leaf + "`"
			for _, own := range f.own {
				key += fmt.Sprintf(" (%s: `%s`)", own.engine, own.name)
			}
			row := []string{key, f.option.Values(), def, f.what(), flag}
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

// Suggest lists values of the setting, or the beginnings of values, for completion. An entry may end with a tab and a
// short description. typed is the text typed so far.
func (f Field) Suggest(typed string) []string {
	switch {
	case f.option.Enum() != nil:
		return slices.Clone(f.option.Enum())
	case f.Type() == "bool":
		return []string{"true", "false"}
	case f.option.Grammar != nil && f.option.Grammar.Suggest != nil:
		return f.option.Grammar.Suggest(typed)
	}
	return nil
}

// Schema returns a JSON Schema of a scenario, for editors. It is as strict as the reader about types, words and
// bounds. It allows any text for settings that a parser checks. A file may also write numbers as texts, which the
// schema does not allow.
func Schema() map[string]any {
	object := func(about string) map[string]any {
		return map[string]any{"type": "object", "description": about, "additionalProperties": false,
			"properties": map[string]any{}}
	}
	root := object("a run")
	parts := map[string]map[string]any{"": root}
	for _, s := range sections[1:] {
		parts[s.key] = object(s.about)
		above, name := "", s.key
		if i := strings.LastIndexByte(s.key, '.'); i >= 0 {
			above, name = s.key[:i], s.key[i+1:]
		}
		parts[above]["properties"].(map[string]any)[name] = parts[s.key]
	}
	for _, f := range fields {
		at := parts[f.Section]["properties"].(map[string]any)
		at[f.leaf] = f.option.Schema()
		for _, own := range f.own {
			at[own.name] = f.option.Schema()
		}
	}
	return root
}

// Parsed reports whether a parser checks the values of the setting.
func (f Field) Parsed() bool { return f.option.Grammar != nil }

// Arguments returns the flags of a command line that gives the scenario, quoted for a shell: those of settings that
// differ from their defaults.
func (s *Scenario) Arguments() (args []string) {
	for _, f := range Fields() {
		v := f.Get(s)
		switch flag, text := f.Option(v); {
		case flag == "" || v == f.Get(&defaults):
		case f.Type() == "bool" && f.Flag != "":
			args = append(args, flag+"="+text)
		default:
			args = append(args, flag+" "+format.Shell(text))
		}
	}
	return args
}
