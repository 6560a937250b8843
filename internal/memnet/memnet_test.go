package memnet

import (
	"context"
	"errors"
	"io"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func get(t *testing.T, c *http.Client, url string, limit time.Duration) (string, error) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), limit)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return string(data), err
}

// A host answers, takes the time that its handler takes and no more, hangs once
// it is frozen, breaks connections when it is killed, and can come back.
func TestHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		c := &http.Client{Transport: n.Transport()}
		defer c.CloseIdleConnections()
		slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-time.After(time.Second):
				io.WriteString(w, r.Host)
			case <-r.Context().Done():
			}
		})
		h := n.Serve("a", slow)
		begun := time.Now()
		for range 3 {
			if text, err := get(t, c, h.URL, time.Minute); text != "a" || err != nil {
				t.Errorf("%q, %v", text, err)
			}
		}
		if took := time.Since(begun); took != 3*time.Second {
			t.Errorf("three requests of a second took %v", took)
		}
		if _, err := get(t, c, "http://b", time.Minute); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a host that is not there: %v", err)
		}

		h.Freeze()
		for range 2 { // on a connection from before, and on a new one
			if _, err := get(t, c, h.URL, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a frozen host: %v", err)
			}
		}
		h.Kill()
		if _, err := get(t, c, h.URL, time.Minute); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a killed host: %v", err)
		}

		h = n.Serve("a", slow)
		time.AfterFunc(time.Second/2, h.Kill)
		begun = time.Now()
		if _, err := get(t, c, h.URL, time.Minute); err == nil || errors.Is(err, context.DeadlineExceeded) ||
			time.Since(begun) != time.Second/2 {
			t.Errorf("killed at work: %v after %v", err, time.Since(begun))
		}
	})
}
