package cli

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestDocCommands: the commands on README's, docs' and lab's pages exist, with flags and values that they take.
func TestDocCommands(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	lab, err := filepath.Glob("../../lab/docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, page := range append(append(pages, lab...), "../../README.md") {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range append(shellLines(string(data)), spans(string(data))...) {
			for _, words := range commandsOf(line) {
				if strings.Contains(strings.Join(words, " "), "...") {
					continue // an outline
				}
				cmd, rest, err := Root().Find(words[1:])
				if err == nil {
					err = cmd.ParseFlags(rest)
				}
				if err != nil && !errors.Is(err, pflag.ErrHelp) && !isPlaceholder(err) {
					t.Errorf("%s: %s: %v", page, strings.Join(words, " "), err)
				}
				checked++
			}
		}
	}
	if checked < 100 {
		t.Errorf("%d commands checked, expected hundreds", checked)
	}
}

// othersFlags are flags of other programs that the pages name, and further names of flags.
var othersFlags = []string{"--async-scheduling", "--check", "--enable-cache-report", "--enable-lora",
	"--enable-lora-overlap-loading", "--enable-metrics", "--fast", "--help", "--lora-backend", "--lora-paths",
	"--max-cpu-loras", "--max-loaded-loras", "--max-lora-rank", "--max-loras", "--max-loras-per-batch",
	"--no-healthcheck", "--save-detailed", "--save-result", "--scheduling-policy", "--shutdown-timeout"}

// TestDocFlags: the flags that README and the pages of docs name within a text are flags of a command.
func TestDocFlags(t *testing.T) {
	flags := map[string]bool{}
	var collect func(c *cobra.Command)
	collect = func(c *cobra.Command) {
		for _, set := range []*pflag.FlagSet{c.Flags(), c.PersistentFlags()} {
			set.VisitAll(func(f *pflag.Flag) { flags["--"+f.Name] = true })
		}
		for _, sub := range c.Commands() {
			collect(sub)
		}
	}
	collect(Root())
	for _, f := range othersFlags {
		flags[f] = true
	}
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	code := regexp.MustCompile("`[^`]+`")
	flag := regexp.MustCompile(`(?:^|[\s\x60])(--[a-z][\w-]*)`)
	checked := 0
	for _, page := range append(pages, "../../README.md") {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, span := range code.FindAllString(codeBlock.ReplaceAllString(string(data), ""), -1) {
			for _, m := range flag.FindAllStringSubmatch(span, -1) {
				if checked++; !flags[m[1]] {
					t.Errorf("%s: %s: no command has the flag %s", page, span, m[1])
				}
			}
		}
	}
	if checked < 300 {
		t.Errorf("%d flags checked, expected hundreds", checked)
	}
}

// isPlaceholder says whether an error is about a value that the reader has to fill in: a variable or capital letters.
func isPlaceholder(err error) bool {
	var value *pflag.InvalidValueError
	return errors.As(err, &value) && regexp.MustCompile(`\$|^[A-Z]+$`).MatchString(value.GetValue())
}

// shellLines are the lines of the shell that a page shows, continued ones joined: blocks marked sh and lines with a
// prompt.
func shellLines(page string) (lines []string) {
	page = strings.ReplaceAll(page, "\\\n", " ")
	for _, m := range regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$").FindAllStringSubmatch(page, -1) {
		for line := range strings.Lines(m[2]) {
			command, prompt := strings.CutPrefix(line, "$ ")
			if prompt || m[1] == "sh" {
				lines = append(lines, strings.TrimSpace(command))
			}
		}
	}
	return lines
}

// spans are the commands within the text of a page: code in one line that begins with the name of the program.
func spans(page string) (lines []string) {
	page = codeBlock.ReplaceAllString(page, "")
	for _, m := range regexp.MustCompile("`(lorasim [^`]+)`").FindAllStringSubmatch(page, -1) {
		lines = append(lines, strings.ReplaceAll(strings.ReplaceAll(m[1], "\n", " "), `\|`, "|"))
	}
	return lines
}

// codeBlock is a block of code in a page.
var codeBlock = regexp.MustCompile("(?ms)^```.*?^```$")

// commandsOf are the calls of lorasim in a line, as words. It knows quotes and comments, and what ends a command.
func commandsOf(line string) (commands [][]string) {
	var words []string
	end := func() {
		if len(words) > 1 && words[0] == "lorasim" {
			commands = append(commands, words)
		}
		words = nil
	}
	token := regexp.MustCompile(`"[^"]*"|'[^']*'|[^\s"'|;&<>#]+|#.*|[|;&<>]+|\s+|#`)
	word, inWord := "", false
	flush := func() {
		if inWord {
			words = append(words, word)
		}
		word, inWord = "", false
	}
	for _, part := range token.FindAllString(line, -1) {
		switch {
		case strings.TrimSpace(part) == "":
			flush()
		case strings.HasPrefix(part, "#") && !inWord:
			end()
			return commands
		case strings.ContainsAny(part[:1], "|;&<>"):
			flush()
			end()
		case part[0] == '"' || part[0] == '\'':
			word, inWord = word+part[1:len(part)-1], true
		default:
			word, inWord = word+part, true
		}
	}
	flush()
	end()
	return commands
}
