package guard

import (
	"errors"
	"net/http"
	"strings"
	"testing"
)

func TestDo(t *testing.T) {
	fails := errors.New("fails")
	var list []int
	for _, c := range []struct {
		name string
		do   func() error
		want string // of the panic; "": none
		err  error
	}{
		{"no error", func() error { return nil }, "", nil},
		{"an error", func() error { return fails }, "", fails},
		{"a text", func() error { panic("broken\nin two") }, "panic: broken in two", nil},
		{"an index", func() error { list[3]++; return nil }, "index out of range", nil},
		{"a long value", func() error { panic(strings.Repeat("x", 1<<20)) }, "panic: xxx", nil},
		{"an error as value", func() error { panic(fails) }, "panic: fails", nil},
	} {
		err := Do(c.do)
		p, ok := errors.AsType[*Panic](err)
		if ok != (c.want != "") || !ok && err != c.err {
			t.Errorf("%s: %v", c.name, err)
		}
		if ok && (!strings.Contains(err.Error(), c.want) || len(err.Error()) > maxValue+10 || len(p.Stack) > maxStack ||
			!strings.Contains(string(p.Stack), "guard_test.go")) {
			t.Errorf("%s: %v, %s", c.name, err, p.Stack)
		}
	}
}

// The panic that ends a connection of net/http goes on to it.
func TestAbortHandler(t *testing.T) {
	defer func() {
		if v := recover(); v != http.ErrAbortHandler {
			t.Errorf("recovered %v", v)
		}
	}()
	Do(func() error { panic(http.ErrAbortHandler) })
}
