package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// A page is docs/measured.md: one section for each source of measured runs.
type page struct{ sections []section }

// A section has the claims of one source, and the commands that predict them.
type section struct {
	// name is the name of the source for --only.
	name  string
	title string
	// about describes the measurement: model, hardware, engine, and the source of the figures.
	about    string
	commands []string // lettered a, b, ...
	rows     []row
}

// A row is one claim. The fields are texts of the page.
type row struct {
	claim, measured, predicted, err string
	// target is the limit of the error and whether it holds; "-" without a target.
	target string
	// peers is the error of other predictions; "-" if unknown.
	peers string
	// command is the letter of the command that predicts.
	command string
}

// missed marks a target that is missed.
const missed = "**missed**"

const head = `# Measured claims

Each row compares one measured figure, or the same figure of several runs, with the prediction of lorasim. The command
below writes this page, so that no prediction is typed by hand:

` + "```sh\n%s\n```" + `

- **Several runs in a row.** Measured and predicted are medians over the runs. The error is the median of the absolute errors and the largest one.
- **One run in a row.** The error is predicted / measured - 1.
- **Target** is the largest allowed error: the median and the worst run, or one run. A target that does not hold is marked as missed.
- **Peers** are errors of other predictions of the same runs.
- **Command** is the letter of a command in the block above the table. ` + "`DATA`" + ` is the folder of measured runs, which is not part of the repository.

[accuracy.md](../../docs/accuracy.md) links to the pages that say how the runs were made and what limits each prediction.

%d rows have a target; %d of them miss it.
`

const columns = "| claim | measured | predicted | error | target | peers | command |\n|---|---|---|---|---|---|---|\n"

// write writes the page. command is the command line that creates the page.
func (p *page) write(w io.Writer, command string) error {
	targets, misses := p.targets()
	var b bytes.Buffer
	fmt.Fprintf(&b, head, command, targets, misses)
	for _, s := range p.sections {
		s.write(&b)
	}
	_, err := w.Write(b.Bytes())
	return err
}

func (s *section) write(b *bytes.Buffer) {
	fmt.Fprintf(b, "\n## %s\n\n<!-- source: %s -->\n%s\n\n```sh\n", s.title, s.name, s.about)
	for i, c := range s.commands {
		fmt.Fprintf(b, "# %s\n%s\n", letter(i), c)
	}
	b.WriteString("```\n\n" + columns)
	for _, r := range s.rows {
		fmt.Fprintf(b, "| %s |\n", strings.Join(r.cells(), " | "))
	}
}

func (r *row) cells() []string {
	return []string{r.claim, r.measured, r.predicted, r.err, r.target, r.peers, r.command}
}

// letter returns the name of a section's i-th command: a, b, ...
func letter(i int) string { return string(rune('a' + i)) }

// targets returns the number of rows with a target, and the number of missed targets.
func (p *page) targets() (all, misses int) {
	for _, s := range p.sections {
		for _, r := range s.rows {
			if r.target != "-" {
				all++
			}
			if strings.Contains(r.target, missed) {
				misses++
			}
		}
	}
	return all, misses
}

// find returns the section of a source, or nil.
func (p *page) find(name string) *section {
	for i := range p.sections {
		if p.sections[i].name == name {
			return &p.sections[i]
		}
	}
	return nil
}

var sourceComment = regexp.MustCompile(`^<!-- source: ([\w-]+) -->$`)

// readPage reads a page written by write. Errors have the line.
func readPage(r io.Reader) (*page, error) {
	p, lines := &page{}, bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	var s *section
	inCode := false
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "```"):
			inCode = !inCode
		case strings.HasPrefix(line, "## ") && !inCode:
			p.sections = append(p.sections, section{title: line[3:]})
			s = &p.sections[len(p.sections)-1]
		case s == nil:
		default:
			if err := s.readLine(line, inCode); err != nil {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
		}
	}
	for i := range p.sections {
		p.sections[i].about = strings.TrimSpace(p.sections[i].about)
	}
	return p, lines.Err()
}

// readLine adds a line to a section.
func (s *section) readLine(line string, inCode bool) error {
	m := sourceComment.FindStringSubmatch(line)
	switch {
	case inCode && line == "# "+letter(len(s.commands)):
		s.commands = append(s.commands, "")
	case inCode && len(s.commands) == 0:
		return fmt.Errorf("%q: expected # a before the first command", line)
	case inCode:
		last := &s.commands[len(s.commands)-1]
		*last = strings.TrimPrefix(*last+"\n"+line, "\n")
	case m != nil:
		s.name = m[1]
	case strings.HasPrefix(line, "| claim ") || strings.HasPrefix(line, "|---"):
	case strings.HasPrefix(line, "|"):
		r, err := readRow(line)
		if err != nil {
			return err
		}
		s.rows = append(s.rows, r)
	case len(s.rows) == 0:
		s.about += line + "\n"
	}
	return nil
}

func readRow(line string) (r row, err error) {
	cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "| "), " |"), " | ")
	if len(cells) != len(r.cells()) {
		return r, fmt.Errorf("%d cells, expected %d: %s", len(cells), len(r.cells()), line)
	}
	return row{cells[0], cells[1], cells[2], cells[3], cells[4], cells[5], cells[6]}, nil
}
