package policies

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lorasim/internal/testutil"
	"lorasim/router"
	"lorasim/router/routertest"
	"lorasim/trace"
)

// tableEnv has 4 workers and 6 adapters: lora0 to lora3, one named like a
// number, one with an @.
func tableEnv() router.Env {
	env := routertest.Env(4, 6)
	env.Adapters[4].Name = "1"
	env.Adapters[5].Name = "org@chat"
	return env
}

func TestTable(t *testing.T) {
	for _, c := range []struct {
		entries string // one on each line
		want    string
		base    string
	}{
		{"0-5@0", "[0] [0] [0] [0] [0] [0]", "[0 1 2 3]"},
		{"0@1\n1-3@2+0\nrest@3", "[1] [2 0] [2 0] [2 0] [3] [3]", "[0 1 2 3]"},
		{"lora0@0\nlora3@3\norg@chat@1\n1@2\nrest@all", "[0] [2] [0 1 2 3] [3] [0 1 2 3] [1]", "[0 1 2 3]"},
		{"rest@1-2\nbase@3+0", "[1 2] [1 2] [1 2] [1 2] [1 2] [1 2]", "[3 0]"},
		{"# workers of the pilot\n\n  0 - 5@0\n", "", ""},
		{"\ufeff0-5 @ 0+2-3\r\n\r\n# end\r\n", "[0 2 3] [0 2 3] [0 2 3] [0 2 3] [0 2 3] [0 2 3]", "[0 1 2 3]"},
	} {
		tab := newTable(tableEnv())
		err := tab.read(strings.NewReader(c.entries), "table")
		if c.want == "" {
			testutil.ExpectError(t, err, "table:3", `no adapter is named "0 - 5"`)
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.entries, err)
			continue
		}
		adapters, base, err := tab.finish()
		if got := strings.Trim(fmt.Sprint(adapters), "[]"); err != nil || got != strings.Trim(c.want, "[]") {
			t.Errorf("%q: got %s (%v), want %s", c.entries, got, err, c.want)
		}
		if got := fmt.Sprint(base); got != c.base {
			t.Errorf("%q: base model on %s, want %s", c.entries, got, c.base)
		}
	}
}

func TestTableErrors(t *testing.T) {
	for _, c := range []struct {
		entries string
		want    []string
	}{
		{"0@0\n1", []string{`t:2: "1", expected ADAPTERS@WORKERS`}},
		{"6@0", []string{`t:1: "6@0": adapter 6, expected 0 to 5`}},
		{"3-2@0", []string{"adapter 3-2, expected 0 to 5"}},
		{"0-99999999999@0", []string{`no adapter is named "0-99999999999"`}},
		{"lora9@0", []string{`no adapter is named "lora9"`, "rest or base"}},
		{"0@4", []string{"worker 4, expected 0 to 3"}},
		{"0@2-1", []string{"worker 2-1, expected 0 to 3"}},
		{"0@", []string{`workers "", expected a number`}},
		{"0@1+", []string{`workers "1+"`}},
		{"0@-1", []string{`workers "-1"`}},
		{"0@one", []string{`workers "one"`}},
		{"0@0-2+1", []string{"worker 1 is listed twice"}},
		{"\n0-3@0\nlora2@1", []string{`t:3: "lora2@1": adapter 2 is listed twice, first in t:2`}},
		{"rest@0\nrest@1", []string{"t:2", "rest is listed twice"}},
		{"base@0\nbase@1", []string{"t:2", "base is listed twice"}},
		{"0-3@0\n5@0", []string{"adapter 4 (1) has no worker", "rest@all"}},
		{"0@0\n" + strings.Repeat("x", 70000), []string{"t:2: ", `xxx...", expected ADAPTERS@WORKERS`}},
	} {
		tab := newTable(tableEnv())
		err := tab.read(strings.NewReader(c.entries), "t")
		if err == nil {
			_, _, err = tab.finish()
		}
		testutil.ExpectError(t, err, c.want...)
	}
	testutil.ExpectError(t, newTable(routertest.Env(2, 0)).add("0@0", "t"), "there are no adapters")
}

func TestExplicitRoutes(t *testing.T) {
	env := routertest.Env(4, 3)
	rt := routertest.New(t, "explicit:map=0@2,1@3+1,2@1+3,base@0+1", env)
	if got := fmt.Sprint(rt.Placement); got != "[[] [1 2] [0] [1 2]]" {
		t.Errorf("placement %s", got)
	}
	for _, c := range []struct {
		name    string
		running []int // -1: down
		adapter int32
		want    int
	}{
		{"only worker", []int{0, 0, 9, 0}, 0, 2},
		{"only worker is down", []int{0, 0, -1, 5}, 0, 3},
		{"and the one after it", []int{7, 0, -1, -1}, 0, 0},
		{"less loaded", []int{0, 2, 0, 1}, 1, 3},
		{"less loaded, listed second", []int{0, 1, 0, 2}, 1, 1},
		{"one of two is down", []int{0, 8, 0, -1}, 1, 1},
		{"both are down", []int{3, -1, 0, -1}, 1, 0}, // after worker 3
		{"both are down, other order", []int{3, -1, 4, -1}, 2, 2},
		{"base model", []int{1, 2, 0, 0}, -1, 0},
		{"all are down", []int{-1, -1, -1, -1}, 1, router.None},
	} {
		v := routertest.View(env)
		routertest.SetRunning(v, c.running...)
		routertest.Equal(t, routertest.Route(rt.Policy, v, c.adapter, 2), []int{c.want, c.want}, c.name)
	}
	counts := routertest.Count(routertest.Route(rt.Policy, routertest.View(env), 1, 20000), 4)
	routertest.Uniform(t, []int{counts[1], counts[3]})
}

func TestExplicitFile(t *testing.T) {
	env := routertest.Env(2, 4)
	path := filepath.Join(t.TempDir(), "table,1.txt")
	text := "# adapter homes\nlora0@1\n1-2@0\n\nrest@0+1\n"
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	fromFile := routertest.New(t, "explicit:file="+path, env)
	inline := routertest.New(t, "explicit:map=lora0@1, 1-2@0, rest@0+1", env)
	if got, want := fmt.Sprint(fromFile.Placement), fmt.Sprint(inline.Placement); got != want ||
		got != "[[1 2 3] [0 3]]" {
		t.Errorf("file gives %s, inline %s", got, want)
	}
	if err := os.WriteFile(path, []byte(text+"7@0\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	_, err := router.New("explicit:file="+path, env)
	testutil.ExpectError(t, err, "policy explicit", path+":6", "adapter 7")
	_, err = router.New("explicit:file="+path+".missing", env)
	testutil.ExpectError(t, err, path+".missing")
	_, err = router.New("explicit:map=0@0,9@1,rest@0", env)
	testutil.ExpectError(t, err, `option map: "9@1": adapter 9, expected 0 to 3`)
}

// FuzzTable: whatever a file holds, it is refused with its place or gives every
// adapter at least one worker, none twice, all in range.
func FuzzTable(f *testing.F) {
	f.Add("0-5@0")
	f.Add("# all\nlora0@0+2\norg@chat@1-3\nbase@1\nrest@all\n")
	f.Add("1@2\r\n0@0-3+1\n")
	f.Add("0@99999999999999999999\n-@-\n@\n@@0\n4-@1")
	f.Fuzz(func(t *testing.T, text string) {
		tab := newTable(tableEnv())
		if err := tab.read(strings.NewReader(text), "t"); err != nil {
			if !strings.HasPrefix(err.Error(), "t:") {
				t.Errorf("error %q does not say where", err)
			}
			return
		}
		adapters, base, err := tab.finish()
		if err != nil {
			return
		}
		for _, workers := range append(adapters, base) {
			seen := make(map[int32]bool)
			for _, w := range workers {
				if w < 0 || w > 3 || seen[w] {
					t.Errorf("%q: workers %v", text, workers)
				}
				seen[w] = true
			}
			if len(workers) == 0 {
				t.Errorf("%q: no workers", text)
			}
		}
	})
}

func TestExplicitManyWorkers(t *testing.T) {
	env := router.Env{Workers: router.Alike(3000, router.Spec{}), Adapters: trace.Names(2, nil)}
	rt := routertest.New(t, "explicit:map=0@0-2999,1@2999", env)
	if n := len(rt.Placement[2999]); n != 2 {
		t.Errorf("worker 2999 has %d adapters, want 2", n)
	}
}
