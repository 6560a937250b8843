package epp

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// Body is the JSON body of a request, as a picker reads it.
type Body struct {
	Model   string    // requested model or adapter; "": not read
	Salt    string    // cache_salt: requests with different salts share no prefix
	Prompts []Content // prompts as the prefix index reads them
	Stream  bool      // stream: the client reads tokens as they come

	fields map[string]any
	raw    []byte
}

// badRequest is the rejection of a body that cannot be read.
func badRequest(format string, a ...any) *Rejection {
	return &Rejection{400, "BadRequest - " + fmt.Sprintf(format, a...)}
}

// ParseBody parses the body of a request by the end of its path: /chat/completions, /completions, /responses,
// /conversations, /embeddings. GIE treats other paths as completions; llm-d passes their bodies on unread. ParseBody
// returns a rejection if the picker rejects the body.
func ParseBody(d Dialect, path string, raw []byte) (*Body, *Rejection) {
	b := &Body{raw: raw}
	if err := json.Unmarshal(raw, &b.fields); err != nil || b.fields == nil {
		if err == nil {
			err = fmt.Errorf("null is not an object")
		}
		return nil, badRequest("error unmarshaling request bodyMap: %v", err)
	}
	b.Salt, _ = b.fields["cache_salt"].(string)
	b.Stream, _ = b.fields["stream"].(bool)
	kind := kindOf(path)
	if d == GIE && kind == "messages" { // its picker does not know the API
		kind = ""
	}
	if d == LLMD && kind == "" {
		return b, nil // passed on as it is, its model unread
	}
	model, _ := b.fields["model"].(string)
	if model == "" {
		if reason := b.read(d, kind); reason != nil {
			return nil, reason
		}
		return nil, badRequest("model not found in request body")
	}
	b.Model = model
	return b, b.read(d, kind)
}

// kindOf is the API of a path; "": none that is known.
func kindOf(path string) string {
	path, _, _ = strings.Cut(path, "?")
	for _, end := range []string{"/chat/completions", "/completions", "/responses", "/conversations", "/embeddings",
		"/messages"} {
		if strings.HasSuffix(path, end) {
			return end[1:]
		}
	}
	return ""
}

// read takes the prompts from the fields.
func (b *Body) read(d Dialect, kind string) *Rejection {
	if kind == "" {
		kind = "completions"
	}
	switch kind {
	case "completions":
		return b.completions(d)
	case "chat/completions":
		return b.chat(d)
	case "responses":
		return b.responses()
	case "messages":
		return b.messages()
	case "conversations":
		return b.whole(d, "items", "conversations")
	}
	return b.whole(d, "input", "embeddings")
}

func (b *Body) completions(d Dialect) *Rejection {
	missing := badRequest("invalid completions request: must have prompt field")
	switch p := b.fields["prompt"].(type) {
	case string:
		if p == "" {
			return missing
		}
		b.add(p)
	case []any:
		texts, ok := stringsOf(p)
		switch {
		case len(p) == 0:
			return missing
		case ok && d == GIE:
			b.add(strings.Join(texts, " "))
		case ok:
			for _, t := range texts {
				b.add(t)
			}
		case d == GIE || !b.addTokens(p):
			return missing
		}
	default:
		return missing
	}
	return nil
}

func (b *Body) chat(d Dialect) *Rejection {
	messages, ok := b.fields["messages"].([]any)
	if !ok || len(messages) == 0 {
		return badRequest("invalid chat completions request: must have valid messages field")
	}
	if d == GIE {
		b.add(giePrompt(messages))
		return nil
	}
	b.add(b.tools() + llmdPrompt(messages))
	return nil
}

// messages reads a request of Anthropic's API, which has the system prompt in a field of its own.
func (b *Body) messages() *Rejection {
	messages, ok := b.fields["messages"].([]any)
	if !ok || len(messages) == 0 {
		return badRequest("invalid messages request: must have at least one message")
	}
	b.add(b.tools() + textOf(b.fields["system"]) + llmdPrompt(messages))
	return nil
}

func (b *Body) responses() *Rejection {
	input := b.fields["input"]
	if input == nil || input == "" {
		return badRequest("invalid responses request: must have input field")
	}
	parts := []any{}
	for _, k := range []string{"instructions", "tools", "input"} {
		if v := b.fields[k]; v != nil {
			parts = append(parts, map[string]any{k: v})
		}
	}
	b.add(marshal(parts))
	return nil
}

// whole is a request whose prompt is the JSON of one field, or in llm-d its text.
func (b *Body) whole(d Dialect, field, kind string) *Rejection {
	v := b.fields[field]
	if v == nil {
		return badRequest("invalid %s request: must have %s field", kind, field)
	}
	if list, ok := v.([]any); ok && d == LLMD {
		if texts, ok := stringsOf(list); ok {
			for _, t := range texts {
				b.add(t)
			}
			return nil
		}
		if b.addTokens(list) {
			return nil
		}
	}
	if d == LLMD {
		b.add(textOf(v))
		return nil
	}
	b.add(marshal(v))
	return nil
}

// tools is the JSON of the tools of a request, which stand before its messages; "" without any.
func (b *Body) tools() string {
	if v := b.fields["tools"]; v != nil {
		return marshal(v)
	}
	return ""
}

func (b *Body) add(text string) { b.Prompts = append(b.Prompts, Text(text)) }

// addTokens adds prompts of token ids: one list, or a list of lists.
func (b *Body) addTokens(list []any) bool {
	if _, nested := list[0].([]any); nested {
		for _, x := range list {
			inner, ok := x.([]any)
			if !ok || len(inner) == 0 || !b.addTokens(inner) {
				return false
			}
		}
		return true
	}
	var text Text
	for _, x := range list {
		id, ok := x.(float64)
		if !ok {
			return false
		}
		text = binary.LittleEndian.AppendUint32(text, uint32(int64(id)))
	}
	b.Prompts = append(b.Prompts, text)
	return true
}

// stringsOf are the elements of a list that has strings alone.
func stringsOf(list []any) (texts []string, ok bool) {
	for _, x := range list {
		s, ok := x.(string)
		if !ok {
			return nil, false
		}
		texts = append(texts, s)
	}
	return texts, true
}

// gieMessage and gieBlock are messages in the form in which GIE hashes them.
type gieMessage struct {
	Role    string `json:"role"`
	Content any    `json:"content,omitempty"`
}

type gieBlock struct {
	Type  string  `json:"type"`
	Text  string  `json:"text"`
	Image gieLink `json:"image_url"`
	Audio gieClip `json:"input_audio"`
	Video gieLink `json:"video_url"`
}

type gieLink struct {
	URL string `json:"url,omitempty"`
}

type gieClip struct {
	Data   string `json:"data,omitempty"`
	Format string `json:"format,omitempty"`
}

// giePrompt is the JSON of messages.
func giePrompt(messages []any) string {
	var out []gieMessage
	for _, m := range messages {
		fields, _ := m.(map[string]any)
		g := gieMessage{Content: ""}
		g.Role, _ = fields["role"].(string)
		switch c := fields["content"].(type) {
		case string:
			g.Content = c
		case []any:
			blocks := []gieBlock{}
			for _, x := range c {
				var b gieBlock
				if err := json.Unmarshal([]byte(marshal(x)), &b); err == nil {
					blocks = append(blocks, b)
				}
			}
			g.Content = blocks
		}
		out = append(out, g)
	}
	return marshal(out)
}

// llmdPrompt is role and text of all messages.
func llmdPrompt(messages []any) string {
	var out strings.Builder
	for _, m := range messages {
		fields, _ := m.(map[string]any)
		role, _ := fields["role"].(string)
		out.WriteString(role + textOf(fields["content"]))
	}
	return out.String()
}

// textOf is the text of a message's content: a string, or blocks with texts.
func textOf(content any) string {
	switch c := content.(type) {
	case string:
		return c
	case []any:
		var out strings.Builder
		for _, x := range c {
			if fields, ok := x.(map[string]any); ok {
				role, _ := fields["role"].(string)
				text, _ := fields["text"].(string)
				out.WriteString(role + text + textOf(fields["content"]))
			}
		}
		return out.String()
	case nil:
		return ""
	}
	return marshal(content)
}

// marshal is the JSON of a value that was read from JSON.
func marshal(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(b)
}

// For returns the body that a server gets for a model. It is unchanged if it has that model already.
func (b *Body) For(model string) []byte {
	if model == b.Model {
		return b.raw
	}
	return b.sorted(model)
}

// sorted is the body with sorted keys and a model, as GIE passes it on.
func (b *Body) sorted(model string) []byte {
	fields := maps.Clone(b.fields)
	fields["model"] = model
	return []byte(marshal(fields))
}

// PassedOn returns the body that the picker of a dialect sends to the server for a model. GIE sorts the keys; llm-d
// sends the result of [Body.For].
func (b *Body) PassedOn(d Dialect, model string) []byte {
	if d == LLMD {
		return b.For(model)
	}
	return b.sorted(model)
}

// Compact returns a JSON body without spaces between values.
func Compact(raw []byte) []byte {
	var out bytes.Buffer
	if json.Compact(&out, raw) != nil {
		return raw
	}
	return out.Bytes()
}
