// Package bearer checks the keys (bearer tokens) of requests, and reads keys from files.
//
//	keys := bearer.New("secret")
//	if !keys.Accept(request) { ... 401 }
package bearer

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"lorasim/internal/textfile"
)

// Keys is a set of keys that a server accepts. The zero value accepts every request.
type Keys struct{ digests [][sha256.Size]byte }

// New returns the set of the given keys. Without keys the set accepts every request.
func New(keys ...string) Keys {
	var k Keys
	for _, key := range keys {
		k.digests = append(k.digests, sha256.Sum256([]byte(key)))
	}
	return k
}

// Required reports whether requests need a key.
func (k Keys) Required() bool { return len(k.digests) > 0 }

const scheme = "Bearer "

// Accept reports whether a request carries one of the keys as "Authorization: Bearer KEY". Its time does not depend on
// the position where keys differ: it compares the SHA-256 digests of all keys in constant time.
func (k Keys) Accept(r *http.Request) bool {
	if !k.Required() {
		return true
	}
	given := r.Header.Get("Authorization")
	if len(given) < len(scheme) || !strings.EqualFold(given[:len(scheme)], scheme) {
		return false
	}
	return k.AcceptKey(given[len(scheme):])
}

// AcceptKey reports whether a key is in the set. It takes as long as Accept.
func (k Keys) AcceptKey(key string) bool {
	digest := sha256.Sum256([]byte(key))
	equal := 0
	for i := range k.digests {
		equal |= subtle.ConstantTimeCompare(digest[:], k.digests[i][:])
	}
	return equal == 1
}

// Check returns an error if a key is malformed. The error does not contain the key.
func Check(key string) error {
	if key == "" {
		return errors.New("the key is empty")
	}
	for i, b := range []byte(key) {
		if b <= ' ' || b > '~' {
			return fmt.Errorf("byte %d of the key is %#02x, expected printable ASCII without spaces", i+1, b)
		}
	}
	return nil
}

// maxFile is the largest size of a file of keys, bytes.
const maxFile = 64 << 10

// ReadFile reads a file of keys, one per line. It skips empty lines and lines that begin with #. A file without a key
// is an error. Errors name the file and line and contain no key.
func ReadFile(ctx context.Context, name string) ([]string, error) {
	text, err := textfile.ReadFile(ctx, name, maxFile)
	if err != nil {
		return nil, err
	}
	var keys []string
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		key := strings.TrimSpace(lines.Text())
		if key == "" || key[0] == '#' {
			continue
		}
		if err := Check(key); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, n, err)
		}
		keys = append(keys, key)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s: no key, expected one per line", name)
	}
	return keys, nil
}
