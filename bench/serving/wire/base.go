package wire

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
)

// leave passes a request to the http.Client, which sends it at most once, too.
func (c *Client) leave(r *http.Request) (*http.Response, error) {
	upgrades := r.Header["Upgrade"] != nil
	if _, ok := c.base.(*http.Transport); !ok {
		return final(upgrades)(c.base.RoundTrip(r))
	}
	r = confirmed(r, processOf(r.Context()))
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	resp, err := final(upgrades)(c.base.RoundTrip(once(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))))
	if err != nil && !connected.Load() {
		err = &unsent{err}
	}
	return resp, err
}

// final returns a filter that turns a reply that is not final into an error, such as a change of protocols without a
// request for it.
func final(upgrades bool) func(*http.Response, error) (*http.Response, error) {
	return func(resp *http.Response, err error) (*http.Response, error) {
		if err != nil || resp.StatusCode >= 200 || upgrades && resp.StatusCode == http.StatusSwitchingProtocols {
			return resp, err
		}
		resp.Body.Close()
		return nil, fmt.Errorf("a reply of status %d", resp.StatusCode)
	}
}

// empty is a body without bytes that is not http.NoBody.
type empty struct{}

func (empty) Read([]byte) (int, error) { return 0, io.EOF }
func (empty) Close() error             { return nil }

// once changes a request, a copy of the caller's, so that http.Transport does not send it a second time once some of
// it was written. It returns the request. By isReplayable of net/http this needs a body that can be read only once,
// for methods that change nothing, and no header that marks a request as idempotent. Such headers keep their values
// under a name in lower case, which is the same to servers.
func once(r *http.Request) *http.Request {
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if v, ok := r.Header[name]; ok {
			r.Header = maps.Clone(r.Header)
			delete(r.Header, name)
			r.Header[strings.ToLower(name)] = v
		}
	}
	none := r.Body == nil || r.Body == http.NoBody
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions:
		if r.GetBody = nil; none {
			r.Body = empty{}
		}
	}
	return r
}
