package faultworker

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"lorasim/bench/serving/httpapi"
)

// generate executes a request.
func (c *conn) generate(q *request, r *Rule) error {
	w := c.w
	if why := w.enter(q); why != "" {
		body := fmt.Sprintf(`{"error":{"message":%q,"type":"BadRequestError","code":400}}`, why)
		switch {
		case w.cfg.API == httpapi.VLLM:
			return c.whole(http.StatusNotFound, "", body)
		case q.path == "/generate" && q.stream: // told in the stream, as sglang does
			return c.whole(http.StatusOK, "Content-Type: text/event-stream\r\n", "data: "+body+"\n\ndata: [DONE]\n\n")
		}
		return c.whole(http.StatusBadRequest, "", body)
	}
	defer w.leave(q)
	w.cfg.Book.note(q.id, executed)
	err := c.reply(q, r)
	select {
	case <-c.dead: // the worker hung up
	default:
		if err == errGone {
			w.cfg.Book.note(q.id, aborted)
		}
	}
	return err
}

// errGone is the error after the client hung up.
var errGone = errors.New("the client hung up")

// reply writes the reply of a request that is executed.
func (c *conn) reply(q *request, r *Rule) error {
	switch r.Do {
	case Crash:
		c.w.Stop()
		return errEnd
	case Drop:
		return errEnd
	case NotHTTP:
		io.WriteString(c, garbage(r))
		return errEnd
	case Garbage:
		return c.whole(http.StatusOK, "", garbage(r))
	case Trickle:
		c.every = r.After
		defer func() { c.every = 0 }()
	}
	head := fmt.Sprintf("X-Request-Id: %s\r\nX-Worker: %s\r\nX-Served: %s:%s\r\n", q.id, c.w.cfg.Name, c.w.cfg.Model,
		q.adapter)
	err := c.tokens(q, r, head)
	if err != nil {
		return err
	}
	c.w.cfg.Book.note(q.id, completed)
	switch r.Do {
	case TooLong:
		_, err = io.WriteString(c, "and some more bytes that nobody asked for")
	case Second:
		if !c.sleep(r.After) {
			return errEnd
		}
		err = c.whole(http.StatusOK, "X-Request-Id: late-"+q.id+"\r\n", c.event(q, r, q.tokens, "late-"+q.id))
	}
	return err
}

// tokens writes the tokens of a reply, as they come or all together.
func (c *conn) tokens(q *request, r *Rule, head string) error {
	ends := r.Do == Cut || r.Do == Reset || r.Do == Stall // after r.Tokens
	if q.stream {
		_, err := fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n%sContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n", head)
		if err != nil {
			return errGone
		}
	}
	for n := 1; n <= q.tokens; n++ {
		if ends && n > r.Tokens {
			return c.breakOff(q, r, head)
		}
		if !c.sleep(c.w.cfg.Token) {
			return errGone
		}
		if q.stream {
			if err := c.chunk("data: " + c.event(q, r, n, q.id) + "\n\n"); err != nil {
				return errGone
			}
		}
	}
	if ends {
		return c.breakOff(q, r, head)
	}
	return c.finish(q, r, head)
}

// finish writes the end of a stream, or a whole reply.
func (c *conn) finish(q *request, r *Rule, head string) (err error) {
	body := c.event(q, r, q.tokens, q.id)
	switch {
	case q.stream && r.Do == TooShort:
		io.WriteString(c, "ffff\r\ndata: ")
		return errEnd
	case q.stream:
		if q.usage {
			err = c.chunk(fmt.Sprintf("data: {\"id\":%q,\"choices\":[],\"usage\":%s}\n\n", q.id, usage(q.tokens, r)))
		}
		if err == nil {
			err = c.chunk("data: [DONE]\n\n")
		}
		if err == nil {
			_, err = io.WriteString(c, "0\r\n\r\n")
		}
	case r.Do == TooShort:
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", head, len(body)+100, body)
		return errEnd
	default:
		err = c.whole(http.StatusOK, head, body)
	}
	if err != nil {
		err = errGone
	}
	return err
}

// breakOff ends a reply early.
func (c *conn) breakOff(q *request, r *Rule, head string) error {
	if !q.stream { // the head and half of the body
		body := c.event(q, r, q.tokens, q.id)
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", head, len(body), body[:len(body)/2])
	}
	switch r.Do {
	case Reset:
		reset(c.Conn)
	case Stall:
		c.hang()
		return errGone
	}
	return errEnd
}

func (c *conn) chunk(text string) error {
	_, err := fmt.Fprintf(c, "%x\r\n%s\r\n", len(text), text)
	return err
}

func usage(n int, r *Rule) string {
	count := int64(n)
	if r.Do == Counts && n > r.Tokens {
		count = r.Number
	}
	return fmt.Sprintf(`{"prompt_tokens":1,"completion_tokens":%d,"total_tokens":%d}`, count, count+1)
}

// event is the n-th event of a stream, or a whole reply of n tokens. Token k has the id k and the text " tk".
func (c *conn) event(q *request, r *Rule, n int, id string) string {
	ids, text := fmt.Sprint(n), fmt.Sprintf(" t%d", n)
	if !q.stream {
		var i, t strings.Builder
		for k := 1; k <= n; k++ {
			if k > 1 {
				i.WriteByte(',')
			}
			fmt.Fprint(&i, k)
			fmt.Fprintf(&t, " t%d", k)
		}
		ids, text = i.String(), t.String()
	}
	last := n >= q.tokens
	if q.path == "/generate" {
		finish := "null"
		if last {
			finish = fmt.Sprintf(`{"type":"length","length":%d}`, n)
		}
		count := int64(n)
		if r.Do == Counts && n > r.Tokens {
			count = r.Number
		}
		return fmt.Sprintf(`{"text":%q,"output_ids":[%s],"meta_info":{"id":%q,"worker":%q,"finish_reason":%s,"prompt_tokens":1,`+
			`"completion_tokens":%d,"cached_tokens":0}}`, text, ids, id, c.w.cfg.Name, finish, count)
	}
	finish := "null"
	if last {
		finish = `"length"`
	}
	said := fmt.Sprintf(`"text":%q`, text)
	switch chat := strings.HasSuffix(q.path, "/chat/completions"); {
	case chat && q.stream:
		said = fmt.Sprintf(`"delta":{"role":"assistant","content":%q}`, text)
	case chat:
		said = fmt.Sprintf(`"message":{"role":"assistant","content":%q}`, text)
	}
	tail := ""
	if !q.stream || r.Do == Counts {
		tail = `,"usage":` + usage(n, r)
	}
	return fmt.Sprintf(`{"id":%q,"worker":%q,"choices":[{"index":0,%s,"token_ids":[%s],"finish_reason":%s}]%s}`,
		id, c.w.cfg.Name, said, ids, finish, tail)
}
