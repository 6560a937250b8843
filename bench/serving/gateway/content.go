package gateway

import (
	"bytes"
	"encoding/json"
	"strings"

	"lorasim/bench/serving/httpapi"
)

// verdict is what an event of a stream is worth to the client.
type verdict uint8

const (
	empty   verdict = iota // nothing of a reply: another worker can still take the request over
	content                // a part of a reply, or its end
	refused                // an error
	foreign                // of another model than the request's
	aborted                // the end of a reply that the worker has aborted, if that is vLLM
	ended                  // the mark at the end of a stream
)

// fastMarks are names of texts in the events of the engines.
var fastMarks = [][]byte{[]byte(`"text":`), []byte(`"content":`)}

// judge judges the data of an event. Data of an unknown form counts as content.
func judge(data []byte) verdict {
	if bytes.Equal(data, doneMark) {
		return ended
	}
	if !bytes.Contains(data, []byte(`"type":`)) { // events of other interfaces have texts that are no content
		for _, mark := range fastMarks {
			if i := bytes.Index(data, mark); i >= 0 && startsText(data[i+len(mark):]) &&
				!bytes.HasPrefix(data, []byte(`{"error"`)) && !bytes.Contains(data, []byte(`"abort"`)) {
				return content
			}
		}
	}
	var e eventFields
	if json.Unmarshal(data, &e) != nil {
		return content
	}
	return e.judge()
}

// startsText reports whether a JSON value is a text that is not empty.
func startsText(value []byte) bool {
	value = bytes.TrimLeft(value, " ")
	return len(value) > 1 && value[0] == '"' && value[1] != '"'
}

// eventFields are the fields by which an event without content is known.
type eventFields struct {
	Error json.RawMessage `json:"error"`
	// of the interfaces of OpenAI: completions and chat
	Choices *[]struct {
		Text   string                     `json:"text"`
		Delta  map[string]json.RawMessage `json:"delta"`
		IDs    json.RawMessage            `json:"token_ids"`
		Finish json.RawMessage            `json:"finish_reason"`
	} `json:"choices"`
	// of sglang
	Text string          `json:"text"`
	IDs  json.RawMessage `json:"output_ids"`
	Meta *struct {
		Finish json.RawMessage `json:"finish_reason"`
	} `json:"meta_info"`
	// of the interfaces with types of events: responses, messages, Cohere's chat
	Type     string            `json:"type"`
	Block    *eventObject      `json:"content_block"`
	Item     *eventObject      `json:"item"`
	Delta    json.RawMessage   `json:"delta"`
	Response *httpapi.Response `json:"response"`
}

type eventObject struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Thinking string `json:"thinking"`
}

func (e *eventFields) judge() verdict {
	switch {
	case !void(e.Error), e.Type == "error":
		return refused
	case e.Type != "":
		return e.judgeType()
	case e.Choices != nil:
		for _, c := range *e.Choices {
			if string(c.Finish) == `"abort"` {
				return aborted
			}
			if c.Text != "" || !void(c.IDs) || !void(c.Finish) {
				return content
			}
			for name, value := range c.Delta {
				if name != "role" && !void(value) {
					return content
				}
			}
		}
		return empty
	case e.Meta == nil || e.Text != "" || !void(e.IDs):
		return content
	case void(e.Meta.Finish):
		return empty
	}
	if status, _ := abortOf(e.Meta.Finish); status > 0 {
		return refused
	}
	return content
}

// abortOf returns the status and the message of a finish reason of sglang: those of a request that it refuses. Status
// 0: it does not.
func abortOf(finish json.RawMessage) (status int, text string) {
	var f struct {
		Type, Message string
		Status        int `json:"status_code"`
	}
	if json.Unmarshal(finish, &f) != nil || f.Type != "abort" {
		return 0, ""
	}
	return f.Status, f.Message
}

var deltaAborted = httpapi.AbortMarkOf(httpapi.VLLM, "/messages", false)

// judgeType judges an event by its type.
func (e *eventFields) judgeType() verdict {
	silent := false
	switch e.Type {
	case "message_delta":
		if deltaAborted.In(e.Delta) >= 0 {
			return aborted
		}
	case "response.completed":
		if e.Response != nil && e.Response.Aborted() {
			return aborted
		}
	case "message_start", "ping", "message-start", "content-start", "content_block_stop", "response.created",
		"response.queued", "response.in_progress", "response.content_part.added":
		silent = true
	case "content_block_start":
		b := e.Block
		silent = b != nil && (b.Type == "text" || b.Type == "thinking") && b.Text == "" && b.Thinking == ""
	case "response.output_item.added":
		silent = e.Item != nil && (e.Item.Type == "message" || e.Item.Type == "reasoning")
	}
	if silent {
		return empty
	}
	return content
}

// void reports whether a JSON value is missing, null or empty.
func void(value json.RawMessage) bool {
	switch strings.TrimSpace(string(value)) {
	case "", "null", `""`, "[]", "{}":
		return true
	}
	return false
}

// eventLines reads the lines of a stream of server-sent events until one has content.
type eventLines struct {
	at       int      // where the next line begins
	comments [][2]int // where comments stand
	data     []byte   // of the latest event
	names    httpapi.ModelNames
	other    string // the name of another model in the latest event; "": there is none
}

// scan reads the whole lines of a stream that have come since the latest call. It returns the verdict on the first
// event with content or an error, or empty.
func (l *eventLines) scan(stream []byte) verdict {
	for {
		rest := stream[l.at:]
		n := bytes.IndexByte(rest, '\n')
		if n < 0 { // a line may end with \r alone
			if n = bytes.IndexByte(rest, '\r'); n < 0 || n == len(rest)-1 {
				return empty
			}
		}
		from := l.at
		l.at += n + 1
		if v := l.line(rest[:n], from); v != empty {
			return v
		}
	}
}

// line reads a line that begins at an offset of the stream.
func (l *eventLines) line(line []byte, from int) verdict {
	if bytes.HasPrefix(line, []byte(":")) {
		l.comments = append(l.comments, [2]int{from, l.at})
		return empty
	}
	if data, ok := bytes.CutPrefix(line, dataMark); ok {
		l.data = bytes.TrimSpace(data)
		if l.other = l.names.Contradicted(l.data); l.other != "" {
			return foreign
		}
		return judge(l.data)
	}
	name, _, _ := bytes.Cut(bytes.TrimSpace(line), []byte(":"))
	switch string(name) {
	case "", "event", "id", "retry", "data":
		return empty
	}
	if l.other = l.names.Contradicted(line); l.other != "" {
		return foreign
	}
	return content // no stream of events
}

// within reports whether the stream ends within a line.
func (l *eventLines) within(stream []byte) bool { return l.at < len(stream) }

// takeComments removes the comments from a stream and returns both.
func (l *eventLines) takeComments(stream []byte) (rest, comments []byte) {
	moved := 0
	for _, c := range l.comments {
		from, to := c[0]-moved, c[1]-moved
		comments = append(append(comments, bytes.TrimSpace(stream[from:to])...), "\n\n"...)
		stream = append(stream[:from], stream[to:]...)
		moved += to - from
	}
	l.at -= moved
	l.comments = l.comments[:0]
	return stream, comments
}
