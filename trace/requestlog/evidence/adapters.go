package evidence

import (
	"cmp"
	"slices"
	"strings"
)

// customers are words in the names of columns that often tell adapters apart, the likelier ones first.
const customers = "lora adapter customer client tenant model bot agent assistant app application service project org " +
	"organization team account user key task workload"

// never are the names of columns that cannot tell adapters apart.
const never = "method path uri url level msg message type finishreason stopreason host useragent protocol status " +
	"traceid spanid requestid id uuid callid prompt response text"

// mayNameAdapters lists the columns that may name adapters, the likeliest ones first: those with a few short texts that
// repeat.
func (d *decision) mayNameAdapters() (names []string) {
	likely := map[string]int{}
	for _, c := range d.Table.Columns {
		values := d.stated(c)
		if d.isUsed(c) || len(values) == 0 || slices.Contains(strings.Fields(never), normalize(c)) ||
			!areNames(values) {
			continue
		}
		hint := len(strings.Fields(customers))
		for _, w := range words(c) {
			if i := slices.Index(strings.Fields(customers), w); i >= 0 {
				hint = min(hint, i)
			}
		}
		distinct := len(slices.Compact(slices.Sorted(slices.Values(values))))
		if hint == len(strings.Fields(customers)) && (distinct < 2 || 2*distinct > len(values)) {
			continue
		}
		likely[c] = hint
		names = append(names, c)
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(likely[a], likely[b]) })
	return names
}

// areNames reports whether most values are short texts, rather than numbers, dates or sentences.
func areNames(values []string) bool {
	return mostly(values, func(v string) bool {
		return len(v) <= 64 && !IsNumberOrDate(v) && strings.Count(v, " ") < 3 && strings.ToLower(v) != "true" &&
			strings.ToLower(v) != "false"
	})
}
