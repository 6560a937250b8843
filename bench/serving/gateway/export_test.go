package gateway

import (
	"net/http"
	"strings"
)

// Both serves clients and operators on one listener, for tests that look at both.
func Both(g *Gateway) http.Handler {
	admin := g.Admin()
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/admin/") || r.URL.Path == "/metrics" {
			admin.ServeHTTP(rw, r)
			return
		}
		g.ServeHTTP(rw, r)
	})
}
