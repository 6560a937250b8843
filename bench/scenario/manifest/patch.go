package manifest

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Patch returns the file that states the number of workers of a server, by its name, with another number of them and,
// unless slots is 0, of adapter slots. All other bytes stay. It is an error if no file states such a number, or if two
// files do.
func (f *Fleet) Patch(files []File, server string, workers, slots int) (name string, changed []byte, err error) {
	s, err := f.server(server)
	if err != nil {
		return "", nil, err
	}
	edits, err := s.edits(workers, slots)
	if err != nil {
		return "", nil, err
	}
	name = s.Place.File
	for _, e := range edits {
		if e.at.place.File != name {
			return "", nil, fmt.Errorf("%s: the number is not in %s", e.at.place, name)
		}
	}
	for _, file := range files {
		if file.Name == name {
			changed = slices.Clone(file.Data)
		}
	}
	slices.SortFunc(edits, func(a,
		b edit) int {
		return b.at.offset - a.at.offset
	}) // the last first: offsets stay right
	for _, e := range edits {
		changed = slices.Concat(changed[:e.at.offset], []byte(e.text), changed[e.at.offset+len(e.at.raw):])
	}
	return name, changed, nil
}

// An edit replaces the token of a scalar.
type edit struct {
	at   *node
	text string
}

func (s *Server) edits(workers, slots int) (list []edit, err error) {
	change := func(at *node, what string, from, to int, flags ...string) {
		switch {
		case from == to || err != nil:
			return
		case at == nil || at.offset < 0:
			err = fmt.Errorf("%s: %s states no number of %s to change: write it, then try again", s.Place, s.Name, what)
			return
		}
		i := slices.IndexFunc(list, func(e edit) bool { return e.at == at }) // one script may hold several numbers
		if i < 0 {
			i = len(list)
			list = append(list, edit{at, at.raw})
		}
		list[i].text = replace(list[i].text, strings.TrimSpace(at.text) == strconv.Itoa(from), from, to, flags)
	}
	change(s.replicas, "replicas", s.Replicas, workers)
	if slots > 0 && slots != s.Slots {
		change(s.slots, "adapter slots", s.Slots, slots, "max-loras", "max-loras-per-batch")
		if host := s.at(hostFlags...); host != nil && s.Host < slots {
			change(host, "adapters in host memory", s.Host, slots, hostFlags...)
		}
	}
	return list, err
}

var hostFlags = []string{"max-cpu-loras", "max-loaded-loras"}

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
