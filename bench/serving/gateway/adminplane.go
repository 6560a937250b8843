package gateway

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"lorasim/internal/format"
	"lorasim/internal/samehost"
)

// Admin returns the handler for operators, which should have a listener of its own. Web pages cannot use it through an
// operator's browser. It refuses three kinds of requests: with a Host that DNS rebinding could have produced, from
// other origins, and POSTs that an HTML form can send.
func (g *Gateway) Admin() http.Handler {
	mux := g.routes()
	guarded := func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case !samehost.Trusts(r, g.cfg.AdminHosts):
			g.reject(rw, http.StatusForbidden,
				fmt.Sprintf("the Host %q is not allowed here; --admin-host NAME allows it",
					format.Clip(r.Host, 100)), "Forbidden")
		case !isPage(r) && !g.cfg.AdminKeys.Accept(r):
			g.refuseKey(rw)
		case !samehost.SameOrigin(r) && !samehost.OpensPage(r, "/admin/"):
			g.reject(rw, http.StatusForbidden, "requests of web pages of another origin are refused", "Forbidden")
		case r.Method == http.MethodPost && !isJSON(r.Header.Get("Content-Type")):
			g.reject(rw, http.StatusUnsupportedMediaType, "expected Content-Type: application/json",
				"Unsupported Media Type")
		default:
			serveRead(rw, r, mux)
		}
	}
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { g.serve(rw, r, guarded) })
}

func isJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && media == "application/json"
}

// serveRead reads the body, which must arrive within adminTimeout. Then it serves the request, which may take longer,
// as a load does.
func serveRead(rw http.ResponseWriter, r *http.Request, h http.Handler) {
	control := http.NewResponseController(rw.(*line).ResponseWriter)
	control.SetReadDeadline(time.Now().Add(adminTimeout)) // a connection without deadlines has none
	body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, keep))
	control.SetReadDeadline(time.Time{})
	if err != nil {
		fail(rw, http.StatusBadRequest, "the body: "+err.Error())
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	h.ServeHTTP(rw, r)
}
