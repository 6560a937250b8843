package fleet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestReadEndpoints(t *testing.T) {
	for _, c := range []struct{ text, want, err string }{
		{"http://gpu0:30000\n\n# all of rack 2\n gpu1:30000/ # new\ngpu0:30000\r\nhttps://h/x\n",
			"http://gpu0:30000 http://gpu1:30000 https://h/x", ""},
		{"gpu0:1\nftp://x\n", "", `f:2: worker URL "ftp://x", expected http(s)://HOST:PORT`},
		{"# none\n", "", "f: no worker, expected a URL in each line"},
		{strings.Repeat("x", 1<<17), "", "f: bufio.Scanner: token too long"},
	} {
		list, err := ReadEndpoints(strings.NewReader(c.text), "f")
		if got := strings.Join(list, " "); got != c.want || fmt.Sprint(err) != c.err && (err != nil || c.err != "") {
			t.Errorf("%.40q: %q, %v; expected %q, %s", c.text, got, err, c.want, c.err)
		}
	}
}

func FuzzEndpoints(f *testing.F) {
	f.Add("http://a:1\nb:2 # x\n")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := ReadEndpoints(strings.NewReader(text), "f")
		if (err == nil) != (len(list) > 0) {
			t.Fatalf("%d workers, %v", len(list), err)
		}
		again, err := ReadEndpoints(strings.NewReader(strings.Join(list, "\n")), "f")
		if len(list) > 0 && (err != nil || !slices.Equal(list, again)) {
			t.Errorf("%q is read as %q, %v", list, again, err)
		}
	})
}

// Workers join and leave with the lines of a file; a list that is broken, or seen once only, changes nothing.
func TestFollow(t *testing.T) {
	inMemory(t, func(t *memory) {
		a, b, c := newFakeWorker(t), newFakeWorker(t), newFakeWorker(t)
		var made []int
		var lines []string
		f, _, _ := startFleet(t, 1, func(cfg *Config) {
			joinable(&made)(cfg)
			cfg.Log = func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
		}, a)
		file := filepath.Join(t.TempDir(), "workers.txt")
		w := &fileWatch{fleet: f, file: file, listed: []string{a.URL}, seen: []string{a.URL}}
		for _, c := range []struct{ text, want string }{
			{a.URL, "0=host1"},
			{a.URL + "\n" + b.URL, "0=host1"},
			{a.URL + "\n" + b.URL, "0=host1, 1=host2"},
			{a.URL + "\nhttp://", "0=host1, 1=host2"},
			{"", "0=host1, 1=host2"},
			{"", "0=host1, 1=host2"},
			{b.URL + "\n" + c.URL, "0=host1, 1=host2"},
			{b.URL + "\n" + a.URL, "0=host1, 1=host2"},
			{b.URL + "\n" + c.URL, "0=host1, 1=host2"},
			{b.URL + "\n" + c.URL, "1=host2, 2=host3"},
			{c.URL + "\n" + a.URL, "1=host2, 2=host3"},
			{c.URL + "\n" + a.URL, "0=host1, 2=host3"},
		} {
			if err := os.WriteFile(file, []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}
			w.look(context.Background())
			if synctest.Wait(); members(f) != c.want {
				t.Errorf("%q: %s, expected %s", c.text, members(f), c.want)
			}
		}
		bad := slices.DeleteFunc(lines, func(l string) bool { return !strings.Contains(l, "stay as they are") })
		if len(bad) != 2 {
			t.Errorf("%q", bad)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := os.WriteFile(file, []byte(b.URL), 0o644); err != nil {
			t.Fatal(err)
		}
		f.Follow(ctx, file, time.Second, []string{a.URL, c.URL})
		if synctest.Wait(); members(f) != "1=host2" {
			t.Errorf("%s", members(f))
		}
	})
}
