package manifest

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Patch returns a file with another number of workers and, unless slots is 0, of adapter slots of a server. All other
// bytes stay. It is an error if the file does not state such a number.
func (f *Fleet) Patch(file File, name string, workers, slots int) ([]byte, error) {
	s, err := f.server(name)
	if err != nil {
		return nil, err
	}
	type edit struct {
		at   *node
		text string
	}
	var edits []edit
	if workers != s.Replicas {
		if s.replicas == nil || s.replicas.offset < 0 {
			return nil, fmt.Errorf("%s: %s states no number of replicas to change: write it, then try again", s.Place, s.Name)
		}
		edits = append(edits, edit{s.replicas, number(s.replicas, s.Replicas, workers)})
	}
	if slots > 0 && slots != s.Slots {
		if s.slots == nil || s.slots.offset < 0 {
			return nil, fmt.Errorf("%s: %s states no number of adapter slots to change: write it, then try again", s.Place,
				s.Name)
		}
		edits = append(edits, edit{s.slots, number(s.slots, s.Slots, slots)})
		if host := s.at("max-cpu-loras", "max-loaded-loras"); host != nil && host.offset >= 0 && s.Host < slots {
			edits = append(edits, edit{host, number(host, s.Host, slots)})
		}
	}
	slices.SortFunc(edits, func(a, b edit) int { return b.at.offset - a.at.offset })
	out := slices.Clone(file.Data)
	for _, e := range edits {
		if e.at.place.File != file.Name {
			return nil, fmt.Errorf("%s: the number is not in %s", e.at.place, file.Name)
		}
		out = slices.Concat(out[:e.at.offset], []byte(e.text), out[e.at.offset+len(e.at.raw):])
	}
	return out, nil
}

// slotFlag is a flag with the number of slots within a longer word, such as "--max-loras=4".
var slotFlag = regexp.MustCompile(`(--max[-_](?:cpu[-_]loras|loaded[-_]loras|loras[-_]per[-_]batch|loras)[= ]+)\d+`)

// number replaces a number within the token of a scalar, and keeps its quotes.
func number(n *node, from, to int) string {
	if strings.TrimSpace(n.text) == strconv.Itoa(from) {
		return strings.Replace(n.raw, strconv.Itoa(from), strconv.Itoa(to), 1)
	}
	return slotFlag.ReplaceAllString(n.raw, "${1}"+strconv.Itoa(to))
}
