package table

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestFormula(t *testing.T) {
	for in, want := range map[string]string{
		"=1+1": "'=1+1", "@SUM(A1)": "'@SUM(A1)", "+cmd|' /C calc'!A0": "'+cmd|' /C calc'!A0", "-2+3": "'-2+3",
		"\tx": "'\tx", "\rx": "\"'\rx\"",
		"＝1": "'＝1", "-1": "-1", "+1.5e-3": "+1.5e-3", "-": "'-", "'=x": "''=x", "''-1": "'''-1", "'x": "'x", "'": "'",
		"": "", "a=b": "a=b", "=\"a\"": "\"'=\"\"a\"\"\"",
	} {
		if got := string(appendCSV(nil, in)); got != want {
			t.Errorf("%q: %q, expected %q", in, got, want)
		}
	}
}

// Every text comes back as it was.
func FuzzFormula(f *testing.F) {
	for _, s := range []string{"=1", "'=1", "''=1", "-1", "'-1", "a", "'", "\r", "＝", "\n=", "@\"x\",y"} {
		f.Add(s)
	}
	path := filepath.Join(f.TempDir(), "f.csv")
	f.Fuzz(func(t *testing.T, s string) {
		if strings.Contains(s, "\r") || s == "" {
			return // line ends become \n; an empty text is an absent one
		}
		id, text := int64(1), s
		columns := []Column{{Name: "id", Value: &id}, {Name: "text", Value: &text}}
		w, err := Create(path, columns, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		r, err := Open(t.Context(), path, columns, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if err := r.Read(); err != nil || text != s {
			t.Errorf("%q came back as %q, %v", s, text, err)
		}
	})
}
