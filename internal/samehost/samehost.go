// Package samehost protects a server on this machine from web pages of other origins in the user's browser.
package samehost

import (
	"cmp"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Trusts says whether a request names the listener by its address, as loopback, or by one of the names. The name of a
// web page that DNS rebinding has turned to this machine is none of them.
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

// hostname is a Host header without its port.
func hostname(host string) string {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	return strings.Trim(cmp.Or(name, host), "[]")
}

// SameOrigin says whether a request comes from a page of this server, from the user (an address that was typed), or
// from a program that is no browser. Unlike net/http.CrossOriginProtection it looks at requests that only read, too.
func SameOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return false
	}
	origin := r.Header.Get("Origin")
	return origin == "" || origin == "http://"+r.Host || origin == "https://"+r.Host
}
