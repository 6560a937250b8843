package prefix

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"testing"

	"lorasim/trace"
)

// treeCase is a case of lab/engines/sglang_tree.py: operations on sglang's own radix cache and its answers.
type treeCase struct {
	Page       int32
	Operations []struct {
		Op      string
		ID      int
		Parts   [][2]int64 // seed and tokens of each part of a text
		Adapter int32
		Tokens  int32
		Prompt  int32 // tokens of the prompt among Tokens
		Want    int64 // tokens found or evicted
		Sizes   [2]int64
	}
}

// TestTreeLikeSGLang replays operations that were recorded from the radix cache of sglang 0.5.23:
//
//	lab/engines/sglang_tree.py testdata/sglang-tree.json --seed tree --cases 20
//
// LORASIM_SGLANG_TREE names another recording, which is not compressed.
func TestTreeLikeSGLang(t *testing.T) {
	f, err := os.Open("testdata/sglang-tree.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(z)
	if path := os.Getenv("LORASIM_SGLANG_TREE"); path != "" {
		more, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer more.Close()
		d = json.NewDecoder(more)
	}
	var cases []treeCase
	if err := d.Decode(&cases); err != nil {
		t.Fatal(err)
	}
	operations := 0
	for i := range cases {
		cases[i].play(t, i)
		operations += len(cases[i].Operations)
	}
	if operations < 1000 {
		t.Errorf("%d operations, expected at least 1000", operations)
	}
}

// play runs the operations on a [Tree] and reports the first that differs.
func (x *treeCase) play(t *testing.T, number int) {
	c, texts := NewTree(x.Page), trace.Texts{}
	type running struct {
		Hold
		text    *trace.Text
		adapter int32
	}
	holds := map[int]*running{}
	for i, o := range x.Operations {
		var text *trace.Text
		at := int32(0)
		for _, p := range o.Parts {
			text = texts.Of(text, at, p[0])
			at += int32(p[1])
		}
		got, pages := int64(0), o.Tokens/x.Page
		switch o.Op {
		case "match":
			n, _ := c.Match(text, o.Adapter, pages)
			got = int64(n * x.Page)
		case "take":
			h := &running{text: text, adapter: o.Adapter}
			got = int64(c.Take(&h.Hold, text, o.Adapter, pages) * x.Page)
			holds[o.ID] = h
		case "add":
			h := holds[o.ID]
			c.Add(&h.Hold, h.text, h.adapter, pages)
			if prompt := o.Prompt / x.Page; 0 < prompt && prompt < pages {
				c.Match(h.text, h.adapter, prompt) // as kvcache.Pool does
			}
		case "release":
			c.Release(&holds[o.ID].Hold)
		case "evict":
			got = c.Evict(int64((o.Tokens+x.Page-1)/x.Page)) * int64(x.Page)
		}
		if sizes := [2]int64{c.Cached() * int64(x.Page), c.Held() * int64(x.Page)}; got != o.Want || sizes != o.Sizes {
			t.Errorf("case %d, operation %d, %s: got %d, expected %d; %d tokens cached and held, expected %d", number,
				i,
				o.Op, got, o.Want, sizes, o.Sizes)
			return
		}
	}
}

// The pages of an unknown reply are evicted before the prompt that they follow, and not with it.
func TestTreeKeeps(t *testing.T) {
	c, text := NewTree(1), new(trace.Text)
	var h Hold
	c.Take(&h, text, 0, 4)
	c.Add(&h, text, 0, 4)
	c.Keep(&h, 3)
	c.Release(&h)
	c.Keep(&h, 2) // follows nothing
	for i, want := range []int64{3, 4, 2, 0} {
		if got := c.Evict(1); got != want {
			t.Errorf("eviction %d: %d pages, expected %d", i, got, want)
		}
	}
}
