// Package samehost protects a server on this machine from web pages of other origins in the user's browser. A server
// checks each request with [Trusts] and [SameOrigin], and may put its pages below a secret path ([CutSecret]). Package
// bench/pages has the headers of answers.
package samehost

import (
	"cmp"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Trusts reports whether the Host of a request is the listener's address, a loopback address, localhost or one of
// the names. This excludes the name of a web page that DNS rebinding points to this machine.
func Trusts(r *http.Request, names []string) bool {
	host := strings.ToLower(strings.TrimSuffix(hostname(r.Host), "."))
	if host == "" {
		return false
	}
	if host == "localhost" ||
		slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, host) }) {
		return true
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ip.Unmap().IsLoopback() || local != nil &&
		local.AddrPort().Addr().Unmap().WithZone("") == ip.Unmap().WithZone("")
}

// hostname returns a Host header without its port.
func hostname(host string) string {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	return strings.Trim(cmp.Or(name, host), "[]")
}

// SameOrigin reports whether a request comes from a page of this server, from the user (a typed address), or from a
// program that is not a browser. Unlike net/http.CrossOriginProtection it also checks requests that only read.
func SameOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return false
	}
	origin := r.Header.Get("Origin")
	return origin == "" || origin == "http://"+r.Host || origin == "https://"+r.Host
}

// OpensPage reports whether a user follows a link to the page with the given path, as from a chat. The page then opens
// in a tab of its own, and the page with the link cannot read it.
func OpensPage(r *http.Request, path string) bool {
	return r.Method == http.MethodGet && r.URL.Path == path && r.Header.Get("Sec-Fetch-Mode") == "navigate" &&
		r.Header.Get("Sec-Fetch-Dest") == "document" && r.Header.Get("Origin") == ""
}

// CutSecret returns the rest of a URL's path after its first part and a slash, and whether the first part is the
// secret. The comparison takes the same time for all secrets of one length.
func CutSecret(path, secret string) (rest string, ok bool) {
	first, rest, ok := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return rest, ok && subtle.ConstantTimeCompare([]byte(first), []byte(secret)) == 1
}
