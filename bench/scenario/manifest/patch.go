package manifest

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Want is what the patched manifests state of a server. Zero values leave them as they are.
type Want struct {
	Workers int
	Slots   int // GPU adapter slots
	Host    int // adapters in host memory; at least Slots
	Copies  Copies
}

// Copies is how many workers hold each adapter that a controller loads.
type Copies int

const (
	OneWorker  Copies = 1 // as the policy static needs it
	AllWorkers Copies = 2
)

// Patch returns the files that differ if the manifests state what is wanted of a server, by its name. It changes these
// numbers alone: all other bytes stay. It is an error if a number is a default, or stands where it cannot be replaced.
func (f *Fleet) Patch(files []File, server string, want Want) (changed []File, err error) {
	s, err := f.server(server)
	if err != nil {
		return nil, err
	}
	want.Workers, want.Slots = cmp.Or(want.Workers, s.Replicas), cmp.Or(want.Slots, s.Slots)
	if want.Host = cmp.Or(want.Host, s.Host); want.Host > 0 {
		want.Host = max(want.Host, want.Slots)
	}
	edits, err := s.edits(want)
	if err != nil {
		return nil, err
	}
	for _, a := range f.of(s) {
		e, err := a.edits(files, want)
		if err != nil {
			return nil, err
		}
		edits = append(edits, e...)
	}
	// The last first, so that offsets stay right.
	slices.SortStableFunc(edits, func(a, b edit) int { return b.offset - a.offset })
	all := slices.Clone(files)
	for i, file := range files {
		data := file.Data
		for _, e := range edits {
			if e.file == file.Name {
				data = slices.Concat(data[:e.offset], []byte(e.text), data[e.offset+e.length:])
			}
		}
		if all[i].Data = data; !bytes.Equal(data, file.Data) {
			changed = append(changed, all[i])
		}
	}
	return changed, s.verify(all, want)
}

// verify returns an error unless the patched files state what is wanted.
func (s *Server) verify(files []File, want Want) error {
	f, err := Read(files...)
	if err != nil {
		return fmt.Errorf("the patched manifest is wrong: %w", err)
	}
	now, err := f.server(s.Name)
	if err != nil {
		return err
	}
	for _, v := range []struct {
		what      string
		got, want int
	}{{"replicas", now.Replicas, want.Workers}, {"adapter slots", now.Slots, want.Slots},
		{"adapters in host memory", now.Host, want.Host}} {
		if v.got != v.want {
			return s.unstated(v.what)
		}
	}
	for _, a := range f.of(now) {
		if a.loaded() && want.Copies != 0 && a.Copies != a.copies(want) {
			return a.refused()
		}
	}
	return nil
}

// unstated is the error for a number that no manifest states.
func (s *Server) unstated(what string) error {
	return fmt.Errorf("%s: %s states no number of %s to change: write it, then try again", s.Place, s.Name, what)
}

// refused is the error for a number of replicas that cannot be replaced.
func (a *Adapter) refused() error {
	return fmt.Errorf("%s: the replicas of adapter %s cannot be changed here: change them by hand", a.Place, a.Name)
}

// An edit replaces bytes of a file.
type edit struct {
	file           string
	offset, length int
	text           string
}

// edits are the changes of a server's numbers.
func (s *Server) edits(want Want) (list []edit, err error) {
	change := func(at *node, what string, from, to int, flags ...string) {
		switch {
		case from == to || err != nil:
			return
		case at == nil || at.offset < 0:
			err = s.unstated(what)
			return
		}
		i := slices.IndexFunc(list, func(e edit) bool { return e.file == at.place.File && e.offset == at.offset })
		if i < 0 { // one script may hold several numbers
			i = len(list)
			list = append(list, at.edit(at.raw))
		}
		list[i].text = replace(list[i].text, strings.TrimSpace(at.text) == strconv.Itoa(from), from, to, flags)
	}
	change(s.replicas, "replicas", s.Replicas, want.Workers)
	change(s.slots, "adapter slots", s.Slots, want.Slots, "max-loras", "max-loras-per-batch")
	if s.host != nil { // else it may follow from the slots
		change(s.host, "adapters in host memory", s.Host, want.Host, hostFlags...)
	}
	return list, err
}

var hostFlags = []string{"max-cpu-loras", "max-loaded-loras"}

func (n *node) edit(text string) edit { return edit{n.place.File, n.offset, len(n.raw), text} }

// loaded reports whether a controller loads the adapter on a number of workers that its manifest states.
func (a *Adapter) loaded() bool { return a.spec != nil }

// copies is the number of workers that hold the adapter, as [Adapter].Copies.
func (a *Adapter) copies(want Want) int {
	switch {
	case want.Copies == OneWorker:
		return 1
	case a.Kind != modelAdapter && a.replicas != nil:
		return want.Workers
	}
	return 0
}

// edits are the changes of the number of workers that hold an adapter. AIBrix takes 1 or no number, so a line comes or
// goes.
func (a *Adapter) edits(files []File, want Want) (list []edit, err error) {
	to := a.copies(want)
	if !a.loaded() || want.Copies == 0 || a.Copies == to {
		return nil, nil
	}
	i := slices.IndexFunc(files, func(f File) bool { return f.Name == a.Place.File })
	switch {
	case a.replicas == nil && a.Kind == modelAdapter && i >= 0:
		starts := lineStarts(files[i].Data)
		if a.spec.place.Line > len(starts) {
			return nil, a.refused()
		}
		at := starts[a.spec.place.Line-1] // the line of the first key
		line, _, _ := bytes.Cut(files[i].Data[at:], []byte("\n"))
		indent := len(line) - len(bytes.TrimLeft(line, " "))
		return []edit{{a.Place.File, at, 0, string(line[:indent]) + "replicas: 1" + ending(line)}}, nil
	case a.replicas == nil || a.replicas.offset < 0 || i < 0:
		return nil, a.refused()
	case to > 0:
		return []edit{a.replicas.edit(replace(a.replicas.raw, true, a.Copies, to, nil))}, nil
	}
	data := files[i].Data
	from := bytes.LastIndexByte(data[:a.replicas.offset], '\n') + 1
	rest, _, _ := bytes.Cut(data[a.replicas.offset:], []byte("\n"))
	until := min(a.replicas.offset+len(rest)+1, len(data))
	if !wholeLine.Match(bytes.TrimRight(data[from:until], "\r\n")) {
		return nil, a.refused()
	}
	return []edit{{a.Place.File, from, until - from, ""}}, nil
}

// wholeLine is a line with the number of replicas alone.
var wholeLine = regexp.MustCompile(`^\s*replicas:\s*\S+\s*(#.*)?$`)

// ending is the end of a line that was cut before its newline.
func ending(line []byte) string {
	if bytes.HasSuffix(line, []byte("\r")) {
		return "\r\n"
	}
	return "\n"
}

// replace replaces a number within the token of a scalar and keeps its quotes. The scalar is the number, or a script
// with the number behind a flag.
func replace(raw string, whole bool, from, to int, flags []string) string {
	if whole {
		return strings.Replace(raw, strconv.Itoa(from), strconv.Itoa(to), 1)
	}
	names := strings.ReplaceAll(strings.Join(flags, "|"), "-", "[-_]")
	return regexp.MustCompile(`(--(?:`+names+`)(?:=|\s+)["']?)`+strconv.Itoa(from)+`\b`).ReplaceAllString(raw,
		"${1}"+strconv.Itoa(to))
}
