package slots

import "testing"

func TestFill(t *testing.T) {
	values := map[string]string{"a": "{{b}}", "b": "x y", "none": ""}
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"plain } { {}\n\n", "plain } { {}\n\n"},
		{"{{a}}, {{b}}{{none}}.", "{{b}}, x y."},
		{"1\n{{?none}}2 {{a}}\n{{?b}}3 {{b}}\n{{none}}\n", "1\n3 x y\n\n"},
		{"{{?none}}last", ""},
	} {
		if got := Fill(c.text, values); got != c.want {
			t.Errorf("%q: %q, expected %q", c.text, got, c.want)
		}
	}
	for _, text := range []string{"{{c}}", "{{?c}}x"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q: no panic", text)
				}
			}()
			Fill(text, values)
		}()
	}
}
