package testbrowser

import (
	"context"
	_ "embed"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// contrastScript computes the contrast of the visible texts of a page.
//
//go:embed contrast.js
var contrastScript string

// Contrast reports texts of the page whose contrast with their background is below that of WCAG 2.2, level AA
// (success criterion 1.4.3): 4.5, or 3 for large texts. It returns the number of texts that it has examined.
func Contrast(t testing.TB, ctx context.Context) (texts int) {
	t.Helper()
	type found struct {
		Texts int      `json:"texts"`
		Low   []string `json:"low"`
	}
	out, err := chromedp.Run(ctx, chromedp.Evaluate[found](contrastScript))
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Low) > 0 {
		t.Errorf("contrast below WCAG AA:\n%s", strings.Join(out.Low, "\n"))
	}
	return out.Texts
}
