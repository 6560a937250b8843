package scripts

import (
	"regexp"
	"strings"
	"testing"
)

// figure is a number with half of its interval: "-18.5 % ±2.4", "159 ±15".
var figure = regexp.MustCompile(`\d+(?:\.\d+)?(?: %)? ±\d+(?:\.\d+)?`)

// TestSummaries: figures that a page repeats from its page of measurements are the same there.
func TestSummaries(t *testing.T) {
	for _, name := range []string{"admission.md", "elastic.md", "migration.md", "prefix.md"} {
		measured := withoutCode(t, "../lab/docs/"+name)
		repeated := figure.FindAllString(withoutCode(t, "../docs/"+name), -1)
		if len(repeated) == 0 {
			t.Errorf("docs/%s: no figures, expected some of lab/docs/%s", name, name)
		}
		for _, f := range repeated {
			if !strings.Contains(measured, f) {
				t.Errorf("docs/%s: %q is not in lab/docs/%s: take the figure from there", name, f, name)
			}
		}
	}
}
