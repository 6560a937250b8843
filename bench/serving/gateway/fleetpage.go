package gateway

import (
	"net/http"
	"strings"

	"lorasim/bench/serving/fleetpage"
)

// isPage reports whether a request is for a file of the page, which needs no key.
func isPage(r *http.Request) bool {
	name, ok := strings.CutPrefix(r.URL.Path, "/admin/")
	return ok && (r.Method == http.MethodGet || r.Method == http.MethodHead) && fleetpage.IsFile(name)
}
