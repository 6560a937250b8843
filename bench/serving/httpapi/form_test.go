package httpapi

import (
	"bytes"
	"mime/multipart"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The last whole model of a form is found, wherever it stands, and however much of the form has come.
func TestInForm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var body bytes.Buffer
		w := multipart.NewWriter(&body)
		w.SetBoundary("bound")
		want, ends := "", []int{}
		names := []string{}
		for range rapid.IntRange(0, 5).Draw(t, "fields") {
			name := rapid.SampledFrom([]string{"model", "file", "language", "model2"}).Draw(t, "name")
			value := rapid.SampledFrom([]string{"", "whisper", "base:l1", "--x\r\n--", "\n--bound2\n", "a\r\n\r\nb\n",
				"\n"}).Draw(t, "value")
			if name == "file" {
				f, _ := w.CreateFormFile("file", "model.wav")
				f.Write([]byte(value))
			} else {
				w.WriteField(name, value)
			}
			if name == "model" {
				names, ends = append(names, value), append(ends, body.Len()+len(w.Boundary())+5)
			}
		}
		w.Close()
		cut := rapid.IntRange(0, body.Len()).Draw(t, "cut")
		ok := false
		for i, end := range ends {
			if end <= cut {
				want, ok = names[i], true
			}
		}
		text := body.Bytes()[:cut]
		from, to, found := InForm(text, w.Boundary())
		if found != ok || string(text[from:to]) != want {
			t.Fatalf("%v %q, expected %v %q in %q", found, text[from:to], ok, want, text)
		}
	})
}

// Forms that are malformed have no model, and others keep theirs.
func TestOddForms(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "--b": "", "--b\r\n": "", "--b--\r\n": "", "--b\r\n\r\n--b": "", "--b\n--b\n--b": "",
		"--b\nContent-Disposition: form-data; name=model\n\nx\n--b--":                                           "x",
		"pre\r\n--b\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nx--b\r\n--b--":                     "x--b",
		"--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n" + strings.Repeat("x", 5000) + "\r\n--b": "",
	} {
		from, to, _ := InForm([]byte(text), "b")
		if got := text[from:to]; got != want {
			t.Errorf("%.60q: %q, expected %q", text, got, want)
		}
	}
}

func FuzzInForm(f *testing.F) {
	f.Add("--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nx\r\n--b--", "b")
	f.Fuzz(func(t *testing.T, text, boundary string) {
		if from, to, ok := InForm([]byte(text), boundary); ok && (from > to || to > len(text)) {
			t.Errorf("%d to %d of %d bytes", from, to, len(text))
		}
	})
}
