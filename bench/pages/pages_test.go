package pages

import (
	"io"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var all = []Page{Report, Explorer, Fleet}

var (
	// declared finds the functions, classes and constants that a script declares for all of it.
	declared = regexp.MustCompile(`(?m)^(export )?(?:async )?(?:function|class|const|let) (?:(\w+)|[\[{] ?([\w, ]+?) ?[\]}] =)`)
	// module finds the import of a whole script under one name.
	module  = regexp.MustCompile(`(?m)^import \* as (\w+) from '\./([^']+)';$`)
	exports = regexp.MustCompile(`(?m)^export \{ (.*) \};$`)
)

// names returns the names that a script declares for all of it, and those that it exports.
func names(text string) (own, exported []string) {
	for _, m := range declared.FindAllStringSubmatch(text, -1) {
		list := strings.Split(m[2]+m[3], ", ")
		if own = append(own, list...); m[1] != "" {
			exported = append(exported, list...)
		}
	}
	for _, m := range exports.FindAllStringSubmatch(text, -1) {
		exported = append(exported, strings.Split(m[1], ", ")...)
	}
	return own, exported
}

// TestImports: each import names a file of the page, and what the file declares and exports; each export has an
// importer.
func TestImports(t *testing.T) {
	used := map[string]bool{"replay.js mountReplay": true} // loaded when it is needed
	exported := map[string]bool{}
	for _, p := range all {
		files, _ := p.sources()
		for file, data := range files {
			text := string(data)
			if !strings.HasSuffix(file, ".js") {
				continue
			}
			own, public := names(text)
			for _, name := range public {
				exported[file+" "+name] = true
				if !slices.Contains(own, name) {
					t.Errorf("%s exports %s, which it does not declare", file, name)
				}
			}
			lines := regexp.MustCompile(`(?m)^\s*import\b[^(\n]*$`).FindAllString(text, -1)
			if whole := module.FindStringSubmatch(text); whole != nil {
				lines = lines[1:]
				calls := regexp.MustCompile(`\b` + whole[1] + `\.(\w+)\(`)
				for _, m := range calls.FindAllStringSubmatch(text, -1) {
					used[whole[2]+" "+m[1]] = true
				}
			}
			list := imported.FindAllStringSubmatch(text, -1)
			if len(list) != len(lines) {
				t.Errorf("%s: %d imports of the form import { name } from './file.js'; of %d: %v", file, len(list),
					len(lines), lines)
			}
			for _, m := range list {
				_, public := names(string(files[m[2]]))
				for name := range strings.SplitSeq(m[1], ", ") {
					used[m[2]+" "+name] = true
					if !slices.Contains(public, name) {
						t.Errorf("%s of page %s imports %s, which %s does not export", file, p, name, m[2])
					}
					rest := regexp.MustCompile(`(?m)^(import|//).*$`).ReplaceAllString(text, "")
					if !regexp.MustCompile(`\b` + name + `\b`).MatchString(rest) {
						t.Errorf("%s imports %s and does not use it", file, name)
					}
				}
			}
		}
	}
	for name := range exported {
		if !used[name] {
			t.Errorf("%s: exported and imported nowhere", name)
		}
	}
}

// TestNamesAreUnique: no file name and no declaration appears twice among the files of a page.
func TestNamesAreUnique(t *testing.T) {
	for _, p := range all {
		where := map[string]string{}
		for _, folder := range p.folders() {
			entries, err := assets.ReadDir(folder)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				text, err := assets.ReadFile(folder + "/" + e.Name())
				if err != nil {
					t.Fatal(err)
				}
				own, _ := names(string(text))
				for _, name := range append(own, "file "+e.Name()) {
					if at := where[name]; at != "" {
						t.Errorf("page %s: %s is in %s and in %s", p, name, at, folder+"/"+e.Name())
					}
					where[name] = folder + "/" + e.Name()
				}
			}
		}
	}
}

// TestBundle: a script comes after those that it imports, once, without imports and exports.
func TestBundle(t *testing.T) {
	got := bundle(map[string][]byte{
		"a.js": []byte("import { b } from './b.js';\nimport { c } from './c.js';\nb(c);\n"),
		"b.js": []byte("import { c } from './c.js';\nexport function b() { c(); }\n"),
		"c.js": []byte("function c() {}\nexport { c };\n"),
		"d.js": []byte("d\n"),
	}, "a.js")
	if want := "function c() {}\nfunction b() { c(); }\nb(c);\n"; got != want {
		t.Errorf("%q, expected %q", got, want)
	}
}

// TestHandler: each file of a page is served with its type and the policy; others are not.
func TestHandler(t *testing.T) {
	for _, p := range all {
		files, h := p.Files(), p.Handler()
		index := string(files["index.html"])
		for name, data := range files {
			if name == "index.html" {
				name = ""
			} else if strings.HasSuffix(name, ".css") && !strings.Contains(index, `href="`+name+`"`) {
				t.Errorf("page %s does not use %s", p, name)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", "/"+name, nil))
			body, _ := io.ReadAll(w.Body)
			policy := w.Header().Get("Content-Security-Policy")
			if w.Code != 200 || string(body) != string(data) || !strings.Contains(policy, "default-src 'none'") ||
				!strings.HasPrefix(w.Header().Get("Content-Type"), "text/") || !p.Has(name) {
				t.Errorf("page %s, %q: %d %v", p, name, w.Code, w.Header())
			}
		}
		for _, name := range []string{"body.html", "shared/style.css", "../pages.go", "none.js", "shared", "."} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", "/"+name, nil))
			if w.Code != 404 || p.Has(name) {
				t.Errorf("page %s has %q: %d", p, name, w.Code)
			}
		}
	}
}

// TestStyle: no style sheet loads anything.
func TestStyle(t *testing.T) {
	for _, p := range all {
		files, styles := p.sources()
		if len(styles) == 0 || styles[0] != "style.css" {
			t.Errorf("page %s has the styles %v", p, styles)
		}
		for _, name := range styles {
			for _, bad := range []string{"url(", "@import", "http"} {
				if strings.Contains(string(files[name]), bad) {
					t.Errorf("%s has %q", name, bad)
				}
			}
		}
	}
}

// TestThemes: each color has a value for the light and for the dark theme, and no style sheet has themes of its own.
func TestThemes(t *testing.T) {
	files, _ := Report.sources()
	colors := regexp.MustCompile(`(--[\w-]+): (light-dark\(#\w+, #\w+\))?`).FindAllSubmatch(files["style.css"], -1)
	if len(colors) < 15 {
		t.Errorf("%d colors, expected more", len(colors))
	}
	for _, c := range colors {
		if len(c[2]) == 0 {
			t.Errorf("%s has no value for each theme", c[1])
		}
	}
	for _, p := range all {
		files, styles := p.sources()
		for _, name := range styles {
			if strings.Contains(string(files[name]), "prefers-color-scheme") {
				t.Errorf("%s has a theme of its own", name)
			}
		}
	}
}
