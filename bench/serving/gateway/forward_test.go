package gateway

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"reflect"
	"testing"

	"lorasim/bench/serving/fleet"
	"lorasim/internal/testutil"
)

// TestOutgoing: headers and query of the request to a worker are those of httputil.ReverseProxy.
func TestOutgoing(t *testing.T) {
	errStop := errors.New("the request was seen")
	for _, c := range []struct {
		query  string
		header http.Header
	}{
		{"", nil},
		{"a=1&b=2", http.Header{"X-Own": {"1", "2"}, "User-Agent": {"me"}}},
		{"a=%41&b=%", http.Header{"Connection": {"X-Hop, close", "Keep-Alive"}, "X-Hop": {"1"}, "Keep-Alive": {"3"}}},
		{"a=1;b=2&c=3", http.Header{"Te": {"gzip, Trailers"}, "Trailer": {"X"}, "Proxy-Connection": {"x"}}},
		{"a=%4g&b=%zz&c=%41%42", http.Header{"Te": {"gzip"}, "Proxy-Authorization": {"x"}, "Cookie": {"a=b"}}},
		{"%e4%bd%a0&=", http.Header{"Forwarded": {"for=1"}, "X-Forwarded-For": {"1"}, "X-Forwarded-Host": {"evil"},
			"X-Forwarded-Proto": {"https"}, "Transfer-Encoding": {"chunked"}, "Proxy-Authenticate": {"x"}}},
	} {
		r := httptest.NewRequest(http.MethodPost, "/v1/completions?"+c.query, nil)
		for name, values := range c.header {
			r.Header[name] = values
		}
		var want *http.Request
		proxy := httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetXForwarded() },
			Transport: testutil.RoundTrip(func(r *http.Request) (*http.Response, error) {
				want = r
				return nil, errStop
			}),
			ErrorHandler: func(http.ResponseWriter, *http.Request, error) {}}
		proxy.ServeHTTP(httptest.NewRecorder(), r)
		got := (&dispatch{g: &Gateway{workers: fleet.Config{}}, r: r}).outgoing()
		if !reflect.DeepEqual(got.Header, want.Header) {
			t.Errorf("header %v, expected %v", got.Header, want.Header)
		}
		if got := soundQuery(r.URL.RawQuery); got != want.URL.RawQuery {
			t.Errorf("query %q, expected %q", got, want.URL.RawQuery)
		}
	}
	for c := range 256 {
		_, err := url.PathUnescape("%4" + string(rune(c)))
		if want := err == nil; c < 128 && isHex(byte(c)) != want {
			t.Errorf("isHex(%q) = %t", byte(c), !want)
		}
	}
}
