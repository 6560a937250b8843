package faultworker

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"lorasim/bench/serving/httpapi"
)

// errEnd ends a connection.
var errEnd = errors.New("the connection ends")

// serve answers one request; an error ends the connection.
func (c *conn) serve(q *request) error {
	r := c.w.rule(q)
	if r == nil {
		r = &Rule{}
	}
	if r.Do == Slow && !c.sleep(r.After) {
		return errEnd
	}
	if done, err := c.instead(q, r); done {
		return err
	}
	if q.kind == Generate {
		return c.generate(q, r)
	}
	status, body := c.w.answer(q, c)
	switch r.Do {
	case Drop, Cut:
		return errEnd
	case Reset:
		reset(c.Conn)
		return errEnd
	case Trickle:
		c.every = r.After
	case Garbage:
		body = garbage(r)
	case TooShort:
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body)+100, body)
		return errEnd
	case Crash:
		c.w.Stop()
		return errEnd
	}
	return c.whole(status, "", body)
}

func garbage(r *Rule) string {
	if r.Text != "" {
		return r.Text
	}
	return "\x00\x01<<<this is not JSON>>>\xff\xfe"
}

// instead sends the reply of a fault that replaces the execution of a request.
func (c *conn) instead(q *request, r *Rule) (done bool, err error) {
	endless := func(head, part string) error {
		const size = 16 << 10 // bytes a millisecond: enough to flood a client, not this machine
		part = strings.Repeat(part, 1+size/len(part))
		io.WriteString(c, head) // if it fails, so does what follows
		for c.sleep(time.Millisecond) {
			if _, err := io.WriteString(c, part); err != nil {
				return err
			}
		}
		return errEnd
	}
	switch r.Do {
	case ResetFirst:
		reset(c.Conn)
		return true, errEnd
	case Hang:
		c.hang()
		return true, errEnd
	case Answer:
		return true, c.whole(max(r.Status, 200), r.Header, r.Text)
	case Redirect:
		return true, c.whole(http.StatusTemporaryRedirect, "Location: "+r.Text+"\r\n", "")
	case Endless:
		return true, endless("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n", cmp.Or(r.Text, "a 1\n"))
	case EndlessHead:
		return true, endless("HTTP/1.1 200 OK\r\n", "X-More: "+strings.Repeat("x", 100)+"\r\n")
	case Endless1xx:
		return true, endless("", "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
	}
	return false, nil
}

// answer is the reply to a request that generates nothing.
func (w *Worker) answer(q *request, c *conn) (status int, body string) {
	vllm := w.cfg.API == httpapi.VLLM
	notFound := `{"detail":"Not Found"}`
	switch {
	case q.kind == Health:
		return http.StatusOK, ""
	case q.kind == Models:
		return http.StatusOK, w.models()
	case q.path == "/version" && vllm:
		return http.StatusOK, `{"version":"faulty"}`
	case q.path == "/metrics" && vllm:
		return http.StatusOK, w.metrics()
	case q.kind == Load && vllm == strings.HasPrefix(q.path, "/v1/"):
		if len(q.body) == 0 {
			return http.StatusMethodNotAllowed, `{"detail":"Method Not Allowed"}`
		}
		return w.load(field(nameField, q.body), c)
	case q.kind == Unload && vllm == strings.HasPrefix(q.path, "/v1/"):
		return w.unload(field(nameField, q.body), c)
	case vllm:
		return http.StatusNotFound, notFound
	case q.kind == Info && q.path != "/version":
		return http.StatusOK, fmt.Sprintf(`{"version":"faulty","model_path":%q,"served_model_name":%q,"enable_lora":true,"dp_size":1,`+
			`"max_running_requests":4096,"max_loras_per_batch":%d,"max_loaded_loras":%s,"max_lora_rank":64,"max_total_num_tokens":10000000,"context_length":32768}`,
			w.cfg.Model, w.cfg.Model, w.cfg.Slots, places(w.cfg.Places))
	case q.path == "/v1/loads":
		w.mu.Lock()
		defer w.mu.Unlock()
		return http.StatusOK, fmt.Sprintf(`{"loads":[{"dp_rank":0,"num_running_reqs":%d,"num_waiting_reqs":0,"max_total_num_tokens":10000000,`+
			`"max_running_requests":4096,"lora":{"slots_total":%d}}]}`, w.running, w.cfg.Slots)
	case q.path == "/abort_request":
		return http.StatusOK, ""
	}
	return http.StatusNotFound, notFound
}

func places(n int) string {
	if n == 0 {
		return "null"
	}
	return fmt.Sprint(n)
}

func (w *Worker) models() string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"object":"list","data":[{"id":%q,"object":"model","owned_by":%q,"root":%[1]q,"parent":null,"max_model_len":32768}`,
		w.cfg.Model, w.cfg.API)
	for _, name := range w.Held() {
		fmt.Fprintf(&b, `,{"id":%q,"object":"model","owned_by":%q,"root":%q,"parent":%q}`, name, w.cfg.API,
			w.cfg.Root+name, w.cfg.Model)
	}
	return b.String() + "]}"
}

func (w *Worker) metrics() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var busy []string
	for _, name := range slices.Sorted(maps.Keys(w.adapters)) {
		if w.adapters[name] > 0 {
			busy = append(busy, name)
		}
	}
	return fmt.Sprintf("# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running %d\n# TYPE vllm:num_requests_waiting gauge\n"+
		"vllm:num_requests_waiting 0\n# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"100000\"} 1\n"+
		"# TYPE vllm:lora_requests_info gauge\nvllm:lora_requests_info{max_lora=\"%d\",running_lora_adapters=%q,waiting_lora_adapters=\"\"} %d.%03d\n",
		w.running, w.cfg.Slots, strings.Join(busy, ","), time.Now().Unix(), time.Now().UnixMilli()%1000)
}

// load loads an adapter, or refuses to.
func (w *Worker) load(name string, c *conn) (int, string) {
	w.mu.Lock()
	_, there := w.adapters[name]
	n := len(w.adapters)
	if full := w.cfg.Places > 0 && n >= w.cfg.Places; name == "" || there || full {
		w.mu.Unlock()
		text := "it is already loaded"
		if !there {
			text = fmt.Sprintf("%d of at most %d adapters are loaded", n, w.cfg.Places)
		}
		return w.loraReply(http.StatusBadRequest, "Failed to load LoRA adapter "+name+": "+text)
	}
	w.adapters[name] = 0
	w.mu.Unlock()
	c.sleep(w.cfg.LoadTime)
	return w.loraReply(http.StatusOK, "")
}

// unload drops an adapter. As sglang's, it waits for the adapter's requests.
func (w *Worker) unload(name string, c *conn) (int, string) {
	for {
		w.mu.Lock()
		n, there := w.adapters[name]
		if !there || n == 0 {
			delete(w.adapters, name)
			w.mu.Unlock()
			if !there {
				return w.loraReply(http.StatusBadRequest, "Failed to unload LoRA adapter "+name+": it is not loaded")
			}
			return w.loraReply(http.StatusOK, "")
		}
		w.mu.Unlock()
		if !c.sleep(5 * time.Millisecond) {
			return w.loraReply(http.StatusBadRequest, "the client hung up")
		}
	}
}

func (w *Worker) loraReply(status int, text string) (int, string) {
	if w.cfg.API == httpapi.VLLM && status == http.StatusOK {
		return status, "Success"
	}
	if w.cfg.API == httpapi.VLLM {
		return status, fmt.Sprintf(`{"error":{"message":%q,"type":"BadRequestError","code":%d}}`, text, status)
	}
	return status, fmt.Sprintf(`{"success":%t,"error_message":%q}`, status == http.StatusOK, text)
}

// enter records the start of a request. It returns the reason if the worker cannot serve the request, else "".
func (w *Worker) enter(q *request) (refusal string) {
	switch model := field(modelField, q.body); {
	case q.path == "/generate":
		q.adapter = field(loraField, q.body)
	case w.cfg.API == httpapi.SGLang:
		_, q.adapter, _ = strings.Cut(model, ":")
	case model != w.cfg.Model:
		q.adapter = model
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if n, there := w.adapters[q.adapter]; there {
		w.adapters[q.adapter] = n + 1
	} else if q.adapter != "" && w.cfg.API == httpapi.VLLM {
		return fmt.Sprintf("The model `%s` does not exist.", q.adapter)
	} else if q.adapter != "" {
		return fmt.Sprintf("LoRA adapter '%s' is not loaded", q.adapter)
	}
	w.running++
	return ""
}

func (w *Worker) leave(q *request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running--
	if n, there := w.adapters[q.adapter]; there {
		w.adapters[q.adapter] = n - 1
	}
}
