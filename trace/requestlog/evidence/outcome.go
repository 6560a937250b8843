package evidence

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// verdict is what a value says about the outcome of a request.
type verdict int

const (
	unclear verdict = iota
	good
	bad
)

// A judge is a column that tells whether a request failed.
type judge struct {
	column string
	of     func(value string) verdict
}

// httpCode finds an HTTP status at the beginning of a text: "500", "499.0", "HTTP 500", "HTTP/1.1 503 Unavailable".
var httpCode = regexp.MustCompile(`^(?:http)?[ /_-]*(?:\d\.\d )?[ _-]*([1-5]\d\d)(?:\.0*)?(?:\D|$)`)

// failing are parts of words that mean a failure. The words of [going] come after these: "unsuccessful" fails.
var failing = strings.Fields(
	"error fail exception timeout timed_out timed-out timedout reject abort cancel incomplete " +
		"unsuccess unavailable overload throttl rate_limit rate-limit ratelimit invalid unauthorized forbidden denied refused " +
		"disconnect broken reset drop kill crash exceeded exhausted internal unknown_error interrupted lost oom evicted " +
		"preempted_abort unfinished not_ok expired panic deadline unreachable bad_request too_many not_found client_closed")

// going are words that mean a success.
var going = strings.Fields(
	"ok okay success succeeded successful successfully completed complete done finished finish true yes y t " +
		"pass passed good served stop length normal eos tool_calls end_turn stop_sequence max_tokens unset")

// ofStatus judges a value of a status column: an HTTP status, a word, or a word with a text.
func ofStatus(value string) verdict {
	text := strings.ToLower(strings.Trim(value, " \t\"'"))
	if m := httpCode.FindStringSubmatch(text); m != nil {
		if m[1] < "400" {
			return good
		}
		return bad
	}
	if x, ok := number(text); ok {
		switch {
		case x == 0: // of gRPC, or of a process
			return good
		case x < 0 || x >= 400 || x == 1: // 1 of a process
			return bad
		}
		return unclear
	}
	if isEmpty(text) {
		return unclear
	}
	return ofWord(text)
}

// ofWord judges a word, or a text that begins with one.
func ofWord(text string) verdict {
	switch text {
	case "no", "n", "f", "false", "ko", "nok", "ng", "err", "not ok", "unhealthy", "5xx", "4xx":
		return bad
	case "2xx", "3xx":
		return good
	}
	if isNoError(text) {
		return good
	}
	joined := strings.Join(strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" -", r) }), "_")
	for _, part := range failing {
		if strings.Contains(joined, strings.ReplaceAll(part, "-", "_")) {
			return bad
		}
	}
	first := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" :;,.(/_-", r) })
	if len(first) > 0 && (slices.Contains(going, first[0]) || slices.Contains(going, first[len(first)-1])) ||
		slices.Contains(going, joined) {
		return good
	}
	return unclear
}

// ofSuccess judges a value of a column such as "success".
func ofSuccess(value string) verdict {
	text := strings.ToLower(strings.Trim(value, " \t\"'"))
	if x, ok := number(text); ok {
		if x == 0 || x >= 400 || x < 0 {
			return bad
		}
		return good
	}
	if text == "none" || text == "null" || text == "" {
		return unclear
	}
	return ofWord(text)
}

// ofError judges a value of a column that holds an error message, a code or a flag.
func ofError(value string) verdict {
	text := strings.ToLower(strings.Trim(value, " \t\"'"))
	if isEmpty(text) || isNoError(text) {
		return good
	}
	if x, ok := number(text); ok {
		if x == 0 || x >= 100 && x < 400 {
			return good
		}
		return bad
	}
	switch text {
	case "false", "no", "n", "f", "ok", "success", "successful", "succeeded", "status_code_ok", "0x0", "200 ok":
		return good
	}
	if m := httpCode.FindStringSubmatch(text); m != nil && m[1] < "400" {
		return good
	}
	return bad
}

// isEmpty reports whether a text is how a program writes that it has nothing to say.
func isEmpty(text string) bool {
	switch text {
	case "", "-", "--", "none", "null", "nil", "nan", "n/a", "na", "#n/a", "undefined", "{}", "[]", "()", "[null]",
		"<nil>", "<null>", "unset", "(null)", "(none)", "\\n":
		return true
	}
	return false
}

// isNoError reports whether a text denies that there is an error: "no error", "0 errors", "without error".
func isNoError(text string) bool {
	for _, begin := range []string{"no error", "noerror", "no_error", "0 error", "without error", "no exception",
		"not failed", "no failure"} {
		if strings.HasPrefix(text, begin) {
			return true
		}
	}
	return false
}

// outcomes finds all columns that tell whether a request failed: programs write several.
func (d *decision) outcomes() {
	for _, k := range []struct {
		field Field
		of    func(string) verdict
	}{{Status, ofStatus}, {Success, ofSuccess}, {Error, ofError}} {
		if c, none := d.declared(k.field); none {
			continue
		} else if c != "" {
			d.verdict = append(d.verdict, judge{c, k.of})
			continue
		}
		for _, c := range d.Table.Columns {
			if d.isUsed(c) || rankOf(usual[k.field], d.keysOf[c]) < 0 {
				continue
			}
			of := k.of
			if k.field == Status && d.isFlag(c) {
				of = ofSuccess
				d.Assumed = append(d.Assumed,
					fmt.Sprintf("column %q is 1 for a success (--columns status=none)", c))
			}
			if why, ok := judges(k.field, of, d.stated(c)); ok {
				d.use(k.field, c, why)
				d.verdict = append(d.verdict, judge{c, of})
			}
		}
	}
}

// isFlag reports whether a column holds 1 for success and 0 for failure: the rows without output have 0. For the status
// of a process, 0 is the success.
func (d *decision) isFlag(column string) bool {
	var n, without [2]int
	output := d.values(d.Layout.column[Output])
	for i, v := range d.values(column) {
		x, ok := number(v)
		switch {
		case v == "":
			continue
		case !ok || x != 0 && x != 1:
			return false
		}
		n[int(x)]++
		if c, err := count(output[i]); err != nil || c == 0 {
			without[int(x)]++
		}
	}
	switch {
	case n[0] == 0 || n[1] == 0:
		return n[1] > 0 // all are 1
	case without[0] != without[1]:
		return without[0] > without[1]
	}
	return n[1] > n[0] // most requests succeed
}

// judges reports whether the values of a column with the name of an outcome are outcomes, and what they say.
func judges(f Field, of func(string) verdict, values []string) (why string, ok bool) {
	var n [3]int
	var strange []string
	for _, v := range values {
		x := of(v)
		n[x]++
		if x == unclear && !slices.Contains(strange, v) && !isEmpty(strings.ToLower(v)) {
			strange = append(strange, v)
		}
	}
	known := n[good] + n[bad]
	if f == Status && known == 0 && len(values) > 0 {
		return "", false
	}
	if n[bad] > 0 {
		why = fmt.Sprintf("%d of the first %d rows failed", n[bad], len(values))
	}
	if len(strange) > 0 && len(strange) <= 3 {
		for i, s := range strange {
			strange[i] = strconv.Quote(s)
		}
		if why != "" {
			why += "; "
		}
		why += strings.Join(strange, ", ") + " is not a failure"
	}
	return why, true
}

// failed reports whether a row is of a request that failed.
func (l *Layout) failed(r Row) bool {
	for _, j := range l.verdict {
		if v := r(j.column); v != "" && j.of(v) == bad {
			return true
		}
	}
	return false
}
