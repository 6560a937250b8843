package evidence

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"lorasim/internal/suggest"
)

// A Field is a property of a request that a column of a log may hold.
type Field string

// The fields. A log must hold Time (or End), and two of Prompt, Output and Total.
const (
	Time     Field = "time"     // arrival time
	End      Field = "end"      // time at which the request ended
	Duration Field = "duration" // time from arrival to end
	Adapter  Field = "adapter"  // name of the adapter; empty, "-" or "none": the base model
	Base     Field = "base"     // name of the base model; an adapter of that name means the base model
	Prompt   Field = "prompt"   // prompt tokens
	Output   Field = "output"   // output tokens
	Total    Field = "total"    // prompt and output tokens together
	MaxNew   Field = "max_new"  // max_tokens of the request
	Rank     Field = "rank"     // LoRA rank of the adapter
	Status   Field = "status"   // HTTP status or a word; failed requests are dropped
	Success  Field = "success"  // true or 1: the request succeeded
	Error    Field = "error"    // error message, code or flag; a request with one is dropped
)

// fields returns all fields in the order in which a report lists them.
func fields() []Field {
	return []Field{Time, End, Duration, Adapter, Base, Prompt, Output, Total, MaxNew, Rank, Status, Success, Error}
}

// usual holds the usual names of columns, the more specific ones first, as normalize returns them.
var usual = map[Field]string{
	Adapter: "adaptername adapter adapterid lora loraname loraadapter loraadaptername loraid lorarequest lorapath " +
		"requestmodel model modelname modelid modelslug modelgroup genaimodelname deployment deploymentname tenant " +
		"tenantid clientid",
	Base: "basemodel basemodelname parentmodel foundationmodel",
	Prompt: "prompttokens serverinputtokens prompttokencount numprompttokens nprompttokens promptlen promptlength " +
		"inputtokens numinputtokens inputtokencount inputlen inputlength inputsequencelength isl contexttokens " +
		"requesttokens prefilltokens numprefilltokens tokensin intokens tokensprompt tokensinput genaitokensinput " +
		"promptsize prompt input",
	Output: "outputtokens completiontokens generatedtokens numoutputtokens numgeneratedtokens numcompletiontokens " +
		"noutputtokens outputtokencount completiontokencount outputlen outputlength outputsequencelength osl " +
		"generationtokens responsetokens decodetokens numdecodetokens tokensout outtokens tokenscompletion " +
		"tokensoutput genaitokensoutput output completion response",
	Total: "totaltokens tokenstotal numtokens totaltokencount",
	MaxNew: "maxnewtokens maxtokens maxcompletiontokens maxoutputtokens requestmaxtokens " +
		"requestedoutputtokens",
	Rank: "rank lorarank adapterrank",

	Time: "arrival arrivaltime arrivaltimestamp arrivalat arrivedat receivedat receivetime received " +
		"requesttimestamp requeststart requeststarttime requestreceivedat requestat starttime startedat startts " +
		"starttimestamp start begin begintime beganat submittime submittedat sendtime sent sentat senttime enqueuedat " +
		"enqueuetime queuedat issuedat creationtime createdat created createtime",
	End: "endtime endedat endts endtimestamp end finishtime finishedat finished completedat completed completetime " +
		"completiontime donetime doneat stoptime responsetimestamp",
	Duration: "requesttime reqtime requestduration requestlatency duration totaltime totallatency totalduration e2e " +
		"e2elatency e2etime endtoendlatency latency elapsed elapsedtime took timetaken walltime runtime " +
		"processingtime responsetime responselatency responseduration servicetime upstreamresponsetime time",

	Status: "status statuscode httpstatus httpstatuscode httpcode httpresponsestatuscode responsecode responsestatus " +
		"responsestatuscode requeststatus finalstatus grpcstatus resultcode result outcome state",
	Success: "success succeeded successful issuccess issuccessful ok passed",
	Error: "error errors errortype errorcode errormessage errormsg errordetail errordetails errorreason errorname " +
		"errorclass errorinformation exception exceptionmessage exceptiontype failure failurereason failed isfailed " +
		"iserror haserror cancelled canceled wascancelled iscancelled aborted timedout istimeout brokenoff",
}

// moments are names of times that may be of the arrival or of the end of a request.
const moments = "timestamp time ts datetime date eventtime eventtimestamp logtime logtimestamp unixtime " +
	"unixtimestamp epoch epochtime timelocal timeiso msec asctime when t requesttime"

// others are names of times of something else than the arrival or the end of a request.
const others = "updatedat updated modifiedat modified expiresat expires expiry deadline insertedat ingestedat " +
	"exportedat firsttokentime firsttokenat firstchunktime completionstarttime lastchunktime lasttokentime birthday " +
	"lastlogin"

// ParseColumns parses "time=NAME,adapter=NAME,...".
func ParseColumns(text string) (map[Field]string, error) {
	out := map[Field]string{}
	for part := range strings.SplitSeq(text, ",") {
		field, name, ok := strings.Cut(part, "=")
		f := Field(strings.TrimSpace(field))
		if !ok || name == "" {
			return nil, fmt.Errorf("%q: expected FIELD=COLUMN, such as time=created_at", part)
		}
		if !slices.Contains(fields(), f) {
			var names []string
			for _, known := range fields() {
				names = append(names, string(known))
			}
			return nil, suggest.Unknown("field", string(f), names)
		}
		out[f] = strings.TrimSpace(name)
	}
	return out, nil
}

// words splits a name into lower-case words: at punctuation, and before capitals ("timestampMs" is timestamp, ms).
func words(name string) (out []string) {
	var word []rune
	flush := func() {
		if len(word) > 0 {
			out = append(out, strings.ToLower(string(word)))
		}
		word = word[:0]
	}
	text := []rune(name)
	for i, r := range text {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			flush()
			continue
		}
		if i > 0 && unicode.IsUpper(r) && (unicode.IsLower(text[i-1]) ||
			i+1 < len(text) && unicode.IsLower(text[i+1]) && unicode.IsUpper(text[i-1])) {
			flush()
		}
		word = append(word, r)
	}
	flush()
	return out
}

// normalize returns the letters and digits of a name, in lower case.
func normalize(name string) string { return strings.Join(words(name), "") }

// fillers are words of names that say nothing about what a column holds.
var fillers = strings.Fields("in utc gmt unix iso iso8601 rfc3339 the of as s")

// plainKeys returns the names under which a column is looked up: its name, and, for a member of a nested JSON object,
// the last parts of its path; then the same names with counts of tokens in their usual form.
func plainKeys(column string) (out []string) {
	parts := strings.Split(column, ".")
	var counts []string
	for i := range parts {
		name := strings.Join(parts[i:], ".")
		out = append(out, normalize(name))
		if key := tokenCount(name); key != "" {
			counts = append(counts, key)
		}
	}
	return append(out, counts...)
}

// tokenCount returns the name of a count of tokens without words for "number", and with the word "tokens": "in_tok" is
// intokens, "num_generation_tokens" is generationtokens. It returns "" for other names.
func tokenCount(name string) (key string) {
	counts := false
	for _, word := range words(name) {
		switch word {
		case "token", "tokens", "tok", "toks", "tkn", "tkns":
			counts = true
			key += "tokens"
		case "num", "n", "nr", "no", "number", "count", "cnt", "of":
		default:
			key += word
		}
	}
	if !counts {
		return ""
	}
	return key
}

// keys returns the names under which a column of times is looked up: those of plainKeys, with and without a unit and
// fillers.
func keys(column string) []string {
	out := plainKeys(column)
	parts := strings.Split(column, ".")
	for i := range parts {
		_, bare := unitIn(strings.Join(parts[i:], "."))
		list := slices.DeleteFunc(words(bare), func(w string) bool { return slices.Contains(fillers, w) })
		out = append(out, normalize(bare), strings.Join(list, ""))
	}
	return out
}

// rankIn returns the position of a column's name in a list of usual names; -1: the name is not in the list.
func rankIn(names, column string) int { return rankOf(names, keys(column)) }

func rankOf(names string, keys []string) int {
	i := 0
	for n := range strings.FieldsSeq(names) {
		if slices.Contains(keys, n) {
			return i
		}
		i++
	}
	return -1
}

// NamesTime reports whether a column has the usual name of a time.
func NamesTime(column string) bool {
	return rankIn(usual[Time], column) >= 0 || rankIn(moments, column) >= 0 || rankIn(usual[End], column) >= 0
}

// NamesError reports whether a column has the usual name of an error.
func NamesError(column string) bool { return rankOf(usual[Error], plainKeys(column)) >= 0 }
