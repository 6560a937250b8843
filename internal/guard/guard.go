// Package guard keeps a panic inside the goroutine's piece of work that caused it.
//
//	err := guard.Do(func() error { return read(worker) })
//	if p, ok := errors.AsType[*guard.Panic](err); ok {
//		log.Print(p, string(p.Stack))
//	}
//
// A program that reads bytes of several servers uses it at the border of each
// goroutine: one server's bytes must not end the work for the others.
package guard

import (
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
)

// maxStack and maxValue bound what a panic leaves in a log, in bytes.
const (
	maxStack = 4 << 10
	maxValue = 300
)

// Panic is a panic that was recovered.
type Panic struct {
	Text  string // of its value, at most 300 bytes, on one line
	Stack []byte // of its goroutine, the innermost 4 KiB
}

func (p *Panic) Error() string { return "panic: " + p.Text }

// Do returns what do returns, or a *Panic if do panics. The panic with which
// net/http handlers end a connection, http.ErrAbortHandler, goes on.
func Do(do func() error) (err error) {
	done := false
	defer func() {
		if done {
			return
		}
		if v := recover(); v == http.ErrAbortHandler {
			panic(v)
		} else if v != nil {
			err = caught(v)
		}
	}()
	err = do()
	done = true
	return err
}

func caught(v any) *Panic {
	text := strings.Join(strings.Fields(fmt.Sprint(v)), " ")
	stack := debug.Stack()
	return &Panic{Text: text[:min(len(text), maxValue)], Stack: stack[:min(len(stack), maxStack)]}
}
