package samehost

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestTrusts(t *testing.T) {
	local := &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 80}
	for host, want := range map[string]bool{
		"127.0.0.1:80": true, "127.0.0.1": true, "[::1]:8080": true, "localhost:80": true, "LOCALHOST.": true,
		"10.1.2.3:80": true, "10.1.2.4:80": false, "gpu1:80": true, "GPU1": true,
		"evil.example": false, "evil.example:80": false, "": false, "127.0.0.1.evil.example": false, ":80": false,
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = host
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, local))
		if got := Trusts(r, []string{"gpu1"}); got != want {
			t.Errorf("Host %q: %v, expected %v", host, got, want)
		}
	}
}

func TestSameOrigin(t *testing.T) {
	for _, c := range []struct {
		site, origin string
		want         bool
	}{
		{"", "", true}, {"none", "", true}, {"same-origin", "", true}, {"same-origin", "http://127.0.0.1:8", true},
		{"", "http://127.0.0.1:8", true}, {"same-site", "", false}, {"cross-site", "", false},
		{"", "http://127.0.0.1:9", false}, {"", "null", false}, {"same-origin", "http://evil.example", false},
		{"cross-site", "http://127.0.0.1:8", false},
	} {
		r := httptest.NewRequest("GET", "http://127.0.0.1:8/", nil)
		if c.site != "" {
			r.Header.Set("Sec-Fetch-Site", c.site)
		}
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		if got := SameOrigin(r); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestCutSecret(t *testing.T) {
	for path, want := range map[string]struct {
		rest string
		ok   bool
	}{
		"/s3cret/": {"", true}, "/s3cret/api/run": {"api/run", true}, "s3cret/a": {"a", true},
		"/s3cret": {"", false}, "/s3cre/a": {"a", false}, "/s3cretx/a": {"a", false}, "/S3CRET/a": {"a", false},
		"//s3cret/": {"s3cret/", false}, "/": {"", false}, "": {"", false},
	} {
		rest, ok := CutSecret(path, "s3cret")
		if rest != want.rest || ok != want.ok {
			t.Errorf("%q: %q, %v, expected %+v", path, rest, ok, want)
		}
	}
}
