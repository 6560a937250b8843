// Package guard turns a panic into an error of the work that caused it.
//
//	err := guard.Do(func() error { return read(worker) })
//	if p, ok := errors.AsType[*guard.Panic](err); ok {
//		log.Print(p, string(p.Stack))
//	}
//
// A program that reads bytes of several servers calls [Do] in each goroutine, so that the bytes of one server cannot
// end the work for the others.
package guard

import (
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
)

// Limits of a Panic, bytes.
const (
	maxStack = 4 << 10
	maxValue = 300
)

// A Panic is a recovered panic.
type Panic struct {
	Text  string // value of the panic, at most 300 bytes, on one line
	Stack []byte // stack of its goroutine, the innermost 4 KiB
}

func (p *Panic) Error() string { return "panic: " + p.Text }

// Do calls do and returns its error, or a *Panic if do panics. It does not recover http.ErrAbortHandler, with which
// net/http handlers end a connection.
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
