package store

import (
	"testing"

	"lorasim/internal/testutil"
)

// Names that a spreadsheet would run stand in CSV files of records with an apostrophe;
// such a file is a workload, too.
func TestFormulaNames(t *testing.T) {
	const text = "id,arrival_s,adapter,prompt_tokens,output_tokens\n0,0,'=HYPERLINK(1),1,1\n1,0,''@a,1,1\n2,0,'plain,1,1\n"
	path := testutil.File(t, "w.csv", text)
	r, err := Open(t.Context(), path, ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for i, want := range []string{"=HYPERLINK(1)", "'@a", "'plain"} {
		if got := r.Adapters()[i].Name; got != want {
			t.Errorf("%q, expected %q", got, want)
		}
	}
}
