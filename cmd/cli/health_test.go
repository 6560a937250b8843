package cli

import "testing"

// The health check reaches a listener on all addresses by loopback.
func TestLocalAddress(t *testing.T) {
	for address, want := range map[string]string{
		":8000": "127.0.0.1:8000", "0.0.0.0:8000": "127.0.0.1:8000", "[::]:8000": "[::1]:8000",
		"gpu0:30000": "gpu0:30000", "127.0.0.2:1": "127.0.0.2:1", "8000": "", "http://gpu0:1": "",
	} {
		got, err := local(address)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v, expected %q", address, got, err, want)
		}
	}
}
