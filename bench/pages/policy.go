package pages

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
)

// SetHeaders sets headers with which browsers load nothing for a page from other servers, and keep other pages away
// from it.
func SetHeaders(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "+
		"img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Frame-Options", "DENY")
}

// filePolicy is the Content-Security-Policy of a page in one file: it runs its own script alone and loads nothing.
func filePolicy(style, script string) string {
	return "default-src 'none'; style-src " + hash(style) + "; script-src " + hash(script) + "; img-src data:"
}

// hash names a style or script in a policy by its content.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
