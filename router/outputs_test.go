package router

import "testing"

func TestOutputs(t *testing.T) {
	o := NewOutputs(2)
	expect := func(what string, adapter, budget, want int32) {
		t.Helper()
		if got := o.Expect(adapter, budget); got != want {
			t.Errorf("%s: adapter %d, budget %d: %d tokens expected, want %d", what, adapter, budget, got, want)
		}
	}
	expect("nothing seen", 0, 2048, UnknownOutput)
	expect("nothing seen", 0, 0, UnknownOutput)
	expect("nothing seen, budget below the guess", 0, 50, 50)
	o.Ended(0, 100)
	o.Ended(0, 200)
	expect("its own mean", 0, 2048, 150)
	expect("its own mean, other budget", 0, 512, 150)
	expect("the mean of others", 1, 2048, 150)
	o.Ended(-1, 600)
	expect("its own mean still", 0, 2048, 150)
	expect("the mean of all", 1, 2048, 300)
	expect("the base model", -1, 2048, 300)
	expect("budget", 1, 299, 299)
	o.Ended(1, 0)
	expect("at least one token", 1, 2048, 1)
}
