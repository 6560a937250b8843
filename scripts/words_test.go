package scripts

import (
	"regexp"
	"strings"
	"testing"
)

// unclear are phrases that make a reader search for what they refer to, or that stand in place of a number.
var unclear = regexp.MustCompile(`(?i)\b(so many|as many as|so much as|not told|(?:is|are) told|no matter|of these|` +
	`stands? (?:above|for|beside)|let be|gives? up|what it says|who (?:is|are|has|comes|asks|fills)|from which on|by then|` +
	`such (?:a one|are|as do)|the former|the latter|of which there)\b`)

// longestSentence is the largest number of words of a sentence.
const longestSentence = 35

// TestPlainWords holds the documentation, which includes the help of flags (docs/reference.md), to short sentences
// without such phrases. Blocks of code count as one word.
func TestPlainWords(t *testing.T) {
	sentences := 0
	for _, page := range docPages(t) {
		text := withoutCode(t, page)
		for _, phrase := range unclear.FindAllString(text, -1) {
			t.Errorf("%s: %q: name what is meant", page, phrase)
		}
		for _, s := range sentencesOf(text) {
			sentences++
			if n := len(strings.Fields(s)); n > longestSentence {
				t.Errorf("%s: a sentence of %d words, at most %d are allowed: %s", page, n, longestSentence, s)
			}
		}
	}
	if sentences < 1000 {
		t.Errorf("%d sentences found, expected thousands", sentences)
	}
}

var (
	inlineCode = regexp.MustCompile("`[^`]*`")
	linkTarget = regexp.MustCompile(`\]\([^)]*\)`)
	paragraph  = regexp.MustCompile(`\n\s*\n|\n\s*(?:[-*]|\d+\.)\s`)
	sentence   = regexp.MustCompile(`[.!?:;]\s+`)
)

// sentencesOf splits the paragraphs and items of lists of a page; tables and headings are left out.
func sentencesOf(text string) (list []string) {
	text = linkTarget.ReplaceAllString(inlineCode.ReplaceAllString(text, "x"), "]")
	for _, p := range paragraph.Split(text, -1) {
		if p = strings.TrimSpace(p); p == "" || p[0] == '|' || p[0] == '#' {
			continue
		}
		list = append(list, sentence.Split(p, -1)...)
	}
	return list
}
