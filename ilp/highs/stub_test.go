//go:build !highs || !cgo

package highs_test

import (
	"errors"
	"testing"

	"lorasim/ilp/highs"
)

func TestUnavailable(t *testing.T) {
	if s, err := highs.New(highs.Auto); highs.Available() || s != nil || !errors.Is(err, highs.ErrUnavailable) {
		t.Errorf("available %v, New: %v, %v", highs.Available(), s, err)
	}
}
