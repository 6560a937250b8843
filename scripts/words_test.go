package scripts

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
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
	// mostWords is the largest number of words in the pages for readers.
	mostWords = 40_000
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

var (
	// generated are pages that a command writes as a whole.
	generated = []string{"reference.md", "result-metrics.md"}
	// generatedRows are the rows that a command writes into policies.md.
	generatedRows = regexp.MustCompile(`(\| policy \| chooses \|\n\|---\|---\|\n)(?:\|[^\n]*\n)*`)
	// drawing is the source of a picture.
	drawing = regexp.MustCompile("(?ms)^```mermaid\n.*?^```$")
)

// readersWords are the words of a page that a reader reads: as wc -w counts, but without words that have no letter and
// no digit (the bars of tables), without sources of drawings, and without tables that a command writes.
func readersWords(text string) (n int) {
	text = generatedRows.ReplaceAllString(drawing.ReplaceAllString(text, ""), "$1")
	for word := range strings.FieldsSeq(text) {
		if strings.ContainsFunc(word, func(c rune) bool { return unicode.IsLetter(c) || unicode.IsDigit(c) }) {
			n++
		}
	}
	return n
}

// TestWordsForReaders limits the words of README and docs/*.md. To see the words of each page:
//
//	go test ./scripts -run WordsForReaders -v
//
// If it fails: remove what another page says, and link to that page; move proofs to lab/docs.
func TestWordsForReaders(t *testing.T) {
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	all := 0
	for _, page := range append(pages, "../README.md") {
		if slices.Contains(generated, filepath.Base(page)) {
			continue
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		n := readersWords(string(text))
		t.Logf("%6d %s", n, page)
		all += n
	}
	if t.Logf("%6d in all", all); all > mostWords {
		t.Errorf("%d words in README and docs, at most %d are allowed", all, mostWords)
	}
	if all < mostWords/2 {
		t.Errorf("%d words in README and docs, expected tens of thousands", all)
	}
	if n := readersWords("| a | `b` |\n|---|---|\n```mermaid\nx --> y\n```\nc 1.\n"); n != 4 {
		t.Errorf("the example has %d words, want 4", n)
	}
}
