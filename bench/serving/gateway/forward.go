package gateway

import (
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// forward sends a request to a worker and passes the answer on. It follows httputil.ReverseProxy, which costs more: a
// timer and a goroutine for each stream, an error for each part of it, and copies of the header's values.
func (d *dispatch) forward() {
	resp, err := d.serve()
	if err != nil {
		d.failed(err)
		return
	}
	if err := d.pass(resp); err != nil {
		resp.Body.Close()
		panic(http.ErrAbortHandler) // what fails is a connection, which must not look whole to the client
	}
}

// pass passes a response on to the client.
func (d *dispatch) pass(resp *http.Response) error {
	l := d.line
	header := l.Header()
	if !l.early {
		endToEnd(header, resp.Header)
	}
	announced := len(resp.Trailer)
	if announced > 0 {
		header.Add("Trailer", strings.Join(slices.Sorted(maps.Keys(resp.Trailer)), ", "))
	}
	l.WriteHeader(resp.StatusCode)
	buf := buffers.Get()
	defer buffers.Put(buf)
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 {
			if _, err := l.Write(buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
	}
	resp.Body.Close()
	prefix := ""
	if len(resp.Trailer) != announced {
		prefix = http.TrailerPrefix
	}
	for name, values := range resp.Trailer {
		header[prefix+name] = append(header[prefix+name], values...)
	}
	return nil
}

// hopByHop reports whether a header is one of the connection, which a proxy does not pass on (RFC 9110, 7.6.1).
func hopByHop(name string) bool {
	switch name {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// hasWord reports whether the values of a header, comma-separated lists, contain a word.
func hasWord(values []string, word string) bool {
	for _, value := range values {
		for item := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(item), word) {
				return true
			}
		}
	}
	return false
}

// endToEnd copies the headers to pass on: not those of the connection, and not those that Connection names.
func endToEnd(to, from http.Header) {
	for name, values := range from {
		if !hopByHop(name) {
			to[name] = values
		}
	}
	for _, value := range from["Connection"] {
		for name := range strings.SplitSeq(value, ",") {
			to.Del(strings.TrimSpace(name))
		}
	}
}

// outgoing returns the parts of the request to workers that are the same for all workers. The values of its header are
// those of the client's request, and must not be changed.
func (d *dispatch) outgoing() *http.Request {
	r := d.r
	h := make(http.Header, len(r.Header)+6)
	endToEnd(h, r.Header)
	dropInstructions(h)
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "Expect"} { // the body is sent at once
		delete(h, name)
	}
	if d.g.cfg.Keys.Required() { // they were for the gateway
		delete(h, "Authorization")
		delete(h, "X-Api-Key")
	}
	if d.g.sendsKey() {
		delete(h, "X-Api-Key") // in place of which the gateway's key goes to the worker
	}
	if hasWord(r.Header["Te"], "trailers") {
		h["Te"] = []string{"trailers"}
	}
	own := [...]string{r.Host, "http", "", ""}
	if r.TLS != nil {
		own[1] = "https"
	}
	h["X-Forwarded-Host"], h["X-Forwarded-Proto"] = own[:1:1], own[1:2:2]
	if ip, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		own[2], h["X-Forwarded-For"] = ip, own[2:3:3]
	}
	if h["User-Agent"] == nil {
		h["User-Agent"] = own[3:4:4] // not that of net/http
	}
	maps.Copy(h, d.g.workers.Header)
	return &http.Request{Method: r.Method, Proto: r.Proto, ProtoMajor: r.ProtoMajor, ProtoMinor: r.ProtoMinor,
		Header: h, TransferEncoding: r.TransferEncoding, Trailer: r.Trailer}
}

// soundQuery returns a query without the parameters that servers read in more than one way: those with a semicolon or
// an invalid percent sign.
func soundQuery(query string) string {
	sound := !strings.Contains(query, ";")
	for rest := query; sound && rest != ""; {
		var found bool
		if _, rest, found = strings.Cut(rest, "%"); found {
			sound = len(rest) >= 2 && isHex(rest[0]) && isHex(rest[1])
		}
	}
	if sound {
		return query
	}
	values, _ := url.ParseQuery(query) // what is invalid is left out
	return values.Encode()
}

func isHex(c byte) bool { return c-'0' < 10 || c|0x20-'a' < 6 }
