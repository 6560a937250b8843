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

const (
	// longestSentence is the largest number of words of a sentence.
	longestSentence = 35
	// longestParagraph is the largest number of sentences of a paragraph or item of a list.
	longestParagraph = 5
)

// TestPlainWords holds the documentation, which includes the help of flags (docs/reference.md), to short sentences and
// paragraphs without such phrases. Blocks of code count as one word.
func TestPlainWords(t *testing.T) {
	sentences := 0
	for _, page := range docPages(t) {
		text := withoutCode(t, page)
		for _, phrase := range unclear.FindAllString(text, -1) {
			t.Errorf("%s: %q: name what is meant", page, phrase)
		}
		for _, p := range paragraphsOf(text) {
			for _, s := range clause.Split(p, -1) {
				sentences++
				if n := len(strings.Fields(s)); n > longestSentence {
					t.Errorf("%s: a sentence of %d words, at most %d are allowed: %s", page, n, longestSentence, s)
				}
			}
			if n := len(sentenceEnd.FindAllString(p+" ", -1)); n > longestParagraph {
				t.Errorf("%s: a paragraph of %d sentences, at most %d are allowed: %s", page, n, longestParagraph, p)
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
	// clause ends what a reader takes in at once.
	clause      = regexp.MustCompile(`[.!?:;]\s+`)
	sentenceEnd = regexp.MustCompile(`[.!?][")]?\s+`) // not that of a bold title
)

// paragraphsOf are the paragraphs and items of lists of a page; tables and headings are left out.
func paragraphsOf(text string) (list []string) {
	text = linkTarget.ReplaceAllString(inlineCode.ReplaceAllString(text, "x"), "]")
	for _, p := range paragraph.Split(text, -1) {
		if p = strings.TrimSpace(p); p != "" && p[0] != '|' && p[0] != '#' {
			list = append(list, p)
		}
	}
	return list
}
