package scenario

import "testing"

// Every setting that is a number has a unit, or is known to have none.
func TestUnits(t *testing.T) {
	for _, f := range Fields() {
		known := f.option.Unit != ""
		switch numeric := f.Type() == "int" || f.Type() == "float"; {
		case numeric && !known:
			t.Errorf("%s has no unit", f.Key)
		case !numeric && known:
			t.Errorf("%s is no number", f.Key)
		}
	}
	for key, want := range map[string]string{
		"routing.migration_interval": "migration_interval (s)", "request_rate": "request_rate (req/s)", "seed": "seed",
		"policy": "policy", "unknown": "unknown",
	} {
		if got := Label(key); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
}
