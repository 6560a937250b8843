package scenario

import (
	"testing"

	"lorasim/trace"
)

// Other adapters do not hide how long a source is.
func TestRenamedIsSized(t *testing.T) {
	w := &trace.Workload{Requests: make([]trace.Request, 3)}
	src := renamed(w.Source(), []trace.Adapter{{Name: "a"}})
	if sized, ok := src.(trace.Sized); !ok || sized.Len() != 3 || src.Adapters()[0].Name != "a" {
		t.Errorf("%T", src)
	}
	if _, ok := renamed(struct{ trace.Source }{w.Source()}, nil).(trace.Sized); ok {
		t.Error("the length of a source that does not know it cannot be known")
	}
}
