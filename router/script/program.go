package script

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"

	starmath "go.starlark.net/lib/math"
	"go.starlark.net/resolve"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// dialect is Starlark with sets, while, and statements outside of functions. There is no recursion, so that the depth
// of calls is bounded by the program.
var dialect = &syntax.FileOptions{Set: true, While: true, TopLevelControl: true}

// program is a Starlark program that has been run once. Its global dictionaries and lists are its state.
type program struct {
	file     string
	steps    uint64 // limit of a call
	thread   *starlark.Thread
	route    *starlark.Function
	finished *starlark.Function // nil: the program does not observe how requests end
}

// Limit of the steps of a call. A step is one instruction of the interpreter; 100,000 take a few milliseconds. A script
// that looks at each worker takes 10 to 50 steps per worker.
const (
	baseSteps      = 100_000
	stepsPerWorker = 20_000
)

// limit sets the limit of the next calls.
func (p *program) limit(workers int) { p.steps = uint64(baseSteps + stepsPerWorker*workers) }

// load runs a program and looks up its functions. Errors begin with file:line:column.
func load(file, source string, predeclared starlark.StringDict) (*program, error) {
	_, compiled, err := starlark.SourceProgramOptions(dialect, file, source, predeclared.Has)
	if err != nil {
		return nil, syntaxError(err)
	}
	p := &program{file: file}
	p.limit(0)
	p.thread = &starlark.Thread{Name: file, Print: func(t *starlark.Thread, text string) {
		fmt.Fprintf(os.Stderr, "%s: %s\n", t.CallFrame(1).Pos, text)
	}}
	p.thread.OnMaxSteps = func(t *starlark.Thread) { t.Cancel(fmt.Sprintf("more than %d steps", p.steps)) }
	var globals starlark.StringDict
	_, err = p.bounded(func() (starlark.Value, error) {
		globals, err = compiled.Init(p.thread, predeclared)
		return starlark.None, err
	})
	if err != nil {
		return nil, err
	}
	if p.route, err = p.function(globals, "route", "request, workers"); err != nil {
		return nil, err
	}
	if p.route == nil {
		return nil, fmt.Errorf("%s: no function route(request, workers)", file)
	}
	p.finished, err = p.function(globals, "finished", "request")
	return p, err
}

// function returns a function of the program, which must have the given parameters; nil: the program does not define
// it.
func (p *program) function(globals starlark.StringDict, name, parameters string) (*starlark.Function, error) {
	v, ok := globals[name]
	if !ok {
		return nil, nil
	}
	f, ok := v.(*starlark.Function)
	if !ok {
		return nil, fmt.Errorf("%s: %s is a %s, expected a function %s(%s)", p.file, name, v.Type(), name, parameters)
	}
	want := 1
	if name == "route" {
		want = 2
	}
	optional := 0
	for i := range f.NumParams() {
		if f.ParamDefault(i) != nil {
			optional++
		}
	}
	if n := f.NumParams(); n < want || n-optional > want || f.NumKwonlyParams() > 0 || f.HasVarargs() || f.HasKwargs() {
		return nil, p.wrong(f, fmt.Errorf("expected %s(%s)", name, parameters))
	}
	return f, nil
}

// call calls a function of the program, within the limit of steps.
func (p *program) call(f *starlark.Function, args []starlark.Value) (starlark.Value, error) {
	return p.bounded(func() (starlark.Value, error) { return starlark.Call(p.thread, f, args, nil) })
}

// bounded runs a part of the program. A panic of the interpreter, for example for a list beyond any memory, is an
// error.
func (p *program) bounded(run func() (starlark.Value, error)) (v starlark.Value, err error) {
	p.thread.SetMaxExecutionSteps(p.thread.ExecutionSteps() + p.steps)
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s: %v", p.file, r)
		}
		if err != nil {
			p.thread.Uncancel()
			err = p.positioned(err)
		}
	}()
	return run()
}

// positioned puts the innermost line of the program at the front of an error.
func (p *program) positioned(err error) error {
	var e *starlark.EvalError
	if !errors.As(err, &e) {
		return err
	}
	for i := range e.CallStack {
		if at := e.CallStack.At(i).Pos; at.Filename() == p.file {
			return fmt.Errorf("%s: %s", at, e.Msg)
		}
	}
	return fmt.Errorf("%s: %s", p.file, e.Msg)
}

// wrong returns an error about the result of a function of the program.
func (p *program) wrong(f *starlark.Function, err error) error {
	return fmt.Errorf("%s: %s returns %w", f.Position(), f.Name(), err)
}

// syntaxError returns the first error of a program that cannot be compiled.
func syntaxError(err error) error {
	var list resolve.ErrorList
	if errors.As(err, &list) {
		return fmt.Errorf("%s: %s", list[0].Pos, list[0].Msg)
	}
	return err // a syntax.Error, which begins with its position
}

// maxRange is the limit of range, so that list(range(10**12)) is an error.
const maxRange = 1_000_000

// predeclared returns the names that are predefined in addition to Starlark's own.
func predeclared(args [][2]string, rng *rand.Rand) starlark.StringDict {
	values := starlark.NewDict(len(args))
	for _, a := range args {
		_ = values.SetKey(starlark.String(a[0]), value(a[1])) // a text can be a key
	}
	values.Freeze()
	return starlark.StringDict{
		"args": values,
		"math": starmath.Module,
		"random": starlark.NewBuiltin("random", func(_ *starlark.Thread, b *starlark.Builtin, a starlark.Tuple,
			kw []starlark.Tuple) (starlark.Value, error) {
			return starlark.Float(rng.Float64()), starlark.UnpackPositionalArgs(b.Name(), a, kw, 0)
		}),
		"range": starlark.NewBuiltin("range", func(t *starlark.Thread, _ *starlark.Builtin, a starlark.Tuple,
			kw []starlark.Tuple) (starlark.Value, error) {
			v, err := starlark.Call(t, starlark.Universe["range"], a, kw)
			if n := starlark.Len(v); err == nil && n > maxRange {
				return nil, fmt.Errorf("range of %d numbers, expected at most %d", n, maxRange)
			}
			return v, err
		}),
	}
}

// value converts the text of an argument: a number, True, False, or the text itself.
func value(text string) starlark.Value {
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return starlark.MakeInt64(i)
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil {
		return starlark.Float(f)
	}
	if b, err := strconv.ParseBool(text); err == nil && len(text) > 1 {
		return starlark.Bool(b)
	}
	return starlark.String(text)
}
