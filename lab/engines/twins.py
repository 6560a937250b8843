"""The same requests to a real engine and to the emulated one: REQUESTS and what ask() keeps of a reply.

A record has the status, the headers, whether the header came before the body, and the
shape of the body: its keys and the types of its values. Bodies may contain placeholders:

    @path/lora3   where the adapter lora3 lies
    @missing      a path where no adapter lies
    @long         a text of more tokens than the context has
    "@ids"        as many token ids
"""

import json
import re
import socket
import time

LONG = 3000  # tokens; the context has 2048
EARLY = 0.05  # s by which a header must come before the body to count as early
# Values of these keys are part of the shape if they are strings or null.
CONSTANT = {"object", "type", "code", "param", "finish_reason", "role", "owned_by", "stop_reason", "status", "parent"}
# Headers whose values are part of the record.
VALUES = {"content-type", "server", "transfer-encoding", "connection", "cache-control", "allow", "retry-after", "www-authenticate"}
ANY_KEYS = {"top_logprobs"}  # objects whose keys are tokens


def shape(value, key=""):
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return f"={value}" if key == "code" else "num"
    if isinstance(value, str):
        return f"={value}" if key in CONSTANT else "str"
    if key == "bytes":  # of half a character there are none
        return "list"
    if isinstance(value, list):
        found = []
        for v in value:
            if (s := shape(v, key)) not in found:
                found.append(s)
        return found
    if key in ANY_KEYS and "logprob" not in value:
        return {"*": shape(next(iter(value.values()), None))}
    return {k: shape(v, k) for k, v in value.items()}


def events(text):
    """The shapes of server-sent events; of equal ones, the first: how the events of several choices mix is a matter of time."""
    found = []
    for block in filter(None, text.split("\n\n")):
        event = {}
        for line in block.split("\n"):
            name, _, rest = line.partition(":")
            rest = rest.removeprefix(" ")
            if name == "data" and rest.startswith(("{", "[{")):
                rest = shape(json.loads(rest))
            event[name or "comment"] = rest
        if event not in found:
            found.append(event)
    return found


def body_shape(text, kind):
    if kind.startswith("text/event-stream"):
        return events(text)
    if kind.startswith("application/json") and text:
        return shape(json.loads(text))
    return "text:" + re.sub(r"\d\d+", "N", text) if len(text) < 300 else "text"


class Reply:
    """A reply that is read as it comes."""

    def __init__(self, port, request, places, key=None, timeout=600):
        method, path, body = request.get("method", "POST"), request["path"], request.get("raw")
        if body is None and "body" in request:
            body = json.dumps(request["body"])
        data = b"" if body is None else fill(body, places).encode("utf-8", "surrogateescape")
        headers = {"Host": f"127.0.0.1:{port}", "Content-Type": "application/json", "Content-Length": str(len(data))}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        headers |= request.get("headers", {})
        lines = [f"{method} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items() if v is not None), "", ""]
        self.begun = time.monotonic()
        self.socket = socket.create_connection(("127.0.0.1", port), timeout)
        self.socket.sendall("\r\n".join(lines).encode() + data)
        self.buffer, self.head_at, self.body_at, self.head, self.text, self.whole = b"", None, None, None, "", False
        self.empty = method == "HEAD"

    def read_head(self):
        while b"\r\n\r\n" not in self.buffer:
            if not self._more():
                return False
        self.head_at = time.monotonic()
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(first.split()[1])
        self.head = {k.lower(): v.strip() for k, _, v in (x.partition(":") for x in lines)}
        return True

    def read(self, until=lambda text: False):
        """Reads to the end of the body, or until a condition on its text holds."""
        if self.head is None and not self.read_head():
            return
        chunked = self.head.get("transfer-encoding") == "chunked"
        length = 0 if self.empty else int(self.head.get("content-length", 0))
        data = self.text.encode()
        while not self.whole and not until(self.text):
            if self.buffer and self.body_at is None:
                self.body_at = time.monotonic()
            if chunked:
                size, found, rest = self.buffer.partition(b"\r\n")
                if found and len(rest) >= int(size, 16) + 2:
                    n = int(size, 16)
                    data, self.buffer, self.whole = data + rest[:n], rest[n + 2:], n == 0
                elif not self._more():
                    break
            else:
                data, self.buffer = data + self.buffer, b""
                self.whole = len(data) >= length
                if not self.whole and not self._more():
                    break
            self.text = data.decode("utf-8", "replace")

    def _more(self):
        try:
            data = self.socket.recv(65536)
        except (ConnectionError, TimeoutError):
            data = b""
        self.buffer += data
        return bool(data)

    def close(self):
        self.socket.close()

    def record(self, early=False):
        """What is compared; with early, also whether a stream's header came before its first event."""
        if self.head is None:
            return {"status": "closed"}
        kind = self.head.get("content-type", "")
        values = self.head | {"allow": ", ".join(sorted(self.head.get("allow", "").split(", ")))}  # uvicorn's order is a set's
        r = {"status": self.status, "headers": {k: values[k] if k in VALUES else "*" for k in sorted(self.head)},
             "shape": body_shape(self.text, kind)}
        if not self.whole:
            r["cut"] = True
        if early:
            r["early"] = self.body_at is not None and self.body_at - self.head_at > EARLY
        return r


def fill(body, places):
    body = body.replace('"@ids"', json.dumps([5] * LONG)).replace("@long", " ".join(["hello"] * LONG))
    return body.replace("@missing", places["missing"]).replace("@path", places["path"])


def ask(port, request, places, key=None):
    """Sends a request and returns the record of its reply."""
    try:
        r = Reply(port, request, places, key)
    except ConnectionRefusedError:
        return {"status": "refused"}
    try:
        n = request.get("events")  # closes the connection after this many
        r.read((lambda text: text.count("\n\n") >= n) if n else lambda text: False)
        record = r.record()
        if n:
            record.pop("cut", None)
        if "server_info" in request["path"] and record["status"] == 200:
            record.pop("shape")  # all of the engine's settings
        return record
    finally:
        r.close()


def R(name, path, body=None, **more):
    r = {"name": name, "path": path} | more
    if body is not None:
        r["body"] = body
    elif "raw" not in r:
        r.setdefault("method", "GET")
    return r


def completions(engine):
    path, p = "/v1/completions", {"model": "base", "prompt": "hello there", "max_tokens": 3, "temperature": 0}
    ids = p | {"prompt": [5, 6, 7, 8]}
    stream = ids | {"stream": True}
    changes = {
        "text": {}, "ids": ids, "texts": {"prompt": ["hello", "there"]}, "lists of ids": {"prompt": [[5, 6], [7, 8]]},
        "stream": stream, "stream of text": {"stream": True}, "stream of texts": {"prompt": ["a", "b"], "stream": True},
        "usage": stream | {"stream_options": {"include_usage": True}},
        "continuous usage": stream | {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
        "usage without stream": {"stream_options": {"include_usage": True}},
        "n 2": {"n": 2, "temperature": 1}, "n 2, stream": stream | {"n": 2, "temperature": 1},
        "n 0": {"n": 0}, "n -1": {"n": -1}, "n two": {"n": "two"},
        "logprobs": {"logprobs": 2}, "logprobs 0": {"logprobs": 0}, "logprobs, stream": stream | {"logprobs": 2},
        "logprobs -1": {"logprobs": -1}, "logprobs 1000": {"logprobs": 1000},
        "echo": {"echo": True}, "stop": {"stop": ["never said"]}, "seed": {"seed": 3},
        "max_tokens 0": {"max_tokens": 0}, "max_tokens -1": {"max_tokens": -1}, "max_tokens null": {"max_tokens": None},
        "max_tokens 1": {"max_tokens": 1}, "max_tokens 1, stream": stream | {"max_tokens": 1},
        "max_tokens 100000": {"max_tokens": 100000}, "max_tokens 2047": {"max_tokens": 2047, "prompt": [5] * 2040},
        "max_tokens 1.5": {"max_tokens": 1.5}, "max_tokens ten": {"max_tokens": "ten"},
        "max_tokens -1, stream": stream | {"max_tokens": -1},
        "prompt empty": {"prompt": ""}, "prompt no ids": {"prompt": []}, "prompt null": {"prompt": None},
        "prompt number": {"prompt": 5}, "prompt object": {"prompt": {"a": 1}},
        "prompt no ids, stream": stream | {"prompt": []},
        "too long": {"prompt": "@long"}, "too long ids": {"prompt": "@ids"}, "too long, stream": stream | {"prompt": "@ids"},
        "just too long": {"prompt": [5] * 8, "max_tokens": 2041},
        "temperature -1": {"temperature": -1}, "temperature hot": {"temperature": "hot"}, "top_p 2": {"top_p": 2},
        "stream yes": {"stream": "yes"}, "stream 5": {"stream": 5}, "unknown field": {"nonsense": 5},
        "ignore_eos": {"ignore_eos": True}, "return_token_ids": ids | {"return_token_ids": True},
        "return_token_ids, stream": stream | {"return_token_ids": True}, "user": {"user": "me"}, "rid": {"rid": "my-rid"},
        "request_id": {"request_id": "my-id"}, "priority": {"priority": 3},
    }
    models = {
        "adapter": "lora0", "base:adapter": "base:lora0", "base:": "base:", "base:base": "base:base", ":adapter": ":lora0",
        "unknown model": "nope", "base:unknown": "base:nope", "other:adapter": "other:lora0", "empty model": "", "null model": None,
        "number as model": 5, "adapter with colon": "v:1", "base:adapter with colon": "base:v:1", "long model": "m" * 300,
    }
    if engine == "vllm":  # sglang ends by ids beyond the vocabulary
        changes |= {"prompt negative id": {"prompt": [5, -6]}, "prompt id beyond the vocabulary": {"prompt": [5, 999999]}}
    found = [R(f"completions: {name}", path, p | change) for name, change in changes.items()]
    for name, model in models.items():
        found.append(R(f"completions: {name}", path, p | {"model": model}))
    for name in ("adapter", "base:adapter", "unknown model", "base:unknown"):
        found.append(R(f"completions: {name}, stream", path, stream | {"model": models[name]}))
    lacks = {k: v for k, v in p.items() if k != "model"}
    found.append(R("completions: no model", path, lacks))
    found.append(R("completions: no prompt", path, {"model": "base", "max_tokens": 3}))
    found.append(R("completions: lora_path", path, p | {"lora_path": "lora0"}))
    found.append(R("completions: unknown lora_path", path, p | {"lora_path": "nope"}))
    found.append(R("completions: x-request-id", path, p, headers={"X-Request-Id": "mine"}))
    found.append(R("completions: abort", path, stream | {"max_tokens": 200, "ignore_eos": True}, events=3))
    return found


def bodies():
    path = "/v1/completions"
    raws = {
        "none": "", "open": '{"model": "base", "prompt": "a"', "array": "[1, 2]", "string": '"a"', "number": "5", "null": "null",
        "words": "hello", "twice the model": '{"model": "nope", "model": "base", "prompt": "a", "max_tokens": 2}',
        "comma": '{"model": "base", "prompt": "a", "max_tokens": 2,}', "bytes": '{"model": "base", "prompt": "\udcff\udcfe", "max_tokens": 2}',
        "NaN": '{"model": "base", "prompt": "a", "max_tokens": 2, "temperature": NaN}',
        "lone surrogate": '{"model": "base", "prompt": "\\ud800", "max_tokens": 2}',
        "NUL": '{"model": "base", "prompt": "a\\u0000b", "max_tokens": 2}',
        "deep": '{"model": "base", "max_tokens": 2, "prompt": ' + "[" * 100 + "]" * 100 + "}",
    }
    found = [R(f"body: {name}", path, raw=raw) for name, raw in raws.items()]
    plain = {"model": "base", "prompt": "a", "max_tokens": 2}
    found.append(R("body: text/plain", path, plain, headers={"Content-Type": "text/plain"}))
    found.append(R("body: no content type", path, plain, headers={"Content-Type": None}))
    found.append(R("body: charset", path, plain, headers={"Content-Type": "application/json; charset=utf-8"}))
    return found


def chat():
    path, p = "/v1/chat/completions", {"model": "base", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 3, "temperature": 0}
    stream = p | {"stream": True}
    changes = {
        "whole": {}, "stream": stream, "usage": stream | {"stream_options": {"include_usage": True}}, "n 2": {"n": 2, "temperature": 1},
        "n 2, stream": stream | {"n": 2, "temperature": 1}, "logprobs": {"logprobs": True, "top_logprobs": 2},
        "logprobs, stream": stream | {"logprobs": True}, "top_logprobs alone": {"top_logprobs": 2},
        "system": {"messages": [{"role": "system", "content": "be"}, {"role": "user", "content": "hello"}]},
        "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]},
        "max_completion_tokens": {"max_tokens": None, "max_completion_tokens": 2}, "max_completion_tokens -1": {"max_completion_tokens": -1},
        "max_completion_tokens 100000": {"max_completion_tokens": 100000}, "max_tokens 0": {"max_tokens": 0},
        "max_tokens 100000": {"max_tokens": 100000}, "no messages": {"messages": []}, "messages null": {"messages": None},
        "messages text": {"messages": "hello"}, "unknown role": {"messages": [{"role": "judge", "content": "hello"}]},
        "no role": {"messages": [{"content": "hello"}]}, "no content": {"messages": [{"role": "user"}]},
        "too long": {"messages": [{"role": "user", "content": "@long"}]}, "adapter": {"model": "lora0"}, "base:adapter": {"model": "base:lora0"},
        "unknown model": {"model": "nope"}, "base:unknown": {"model": "base:nope"}, "unknown model, stream": stream | {"model": "nope"},
        "base:unknown, stream": stream | {"model": "base:nope"}, "return_token_ids": {"return_token_ids": True},
    }
    found = [R(f"chat: {name}", path, p | change) for name, change in changes.items()]
    found.append(R("chat: nothing", path, {}))
    found.append(R("chat: abort", path, stream | {"max_tokens": 200, "ignore_eos": True}, events=3))
    return found


def other_forms():
    m = {"model": "base"}
    # At temperature 0 the tokens are the same each time: a stream of tokens without text has no content block.
    message = m | {"max_tokens": 3, "temperature": 0, "messages": [{"role": "user", "content": "hello"}]}
    response = m | {"input": "hello", "max_output_tokens": 16, "temperature": 0}
    return [
        R("responses: whole", "/v1/responses", response), R("responses: stream", "/v1/responses", response | {"stream": True}),
        R("responses: adapter", "/v1/responses", response | {"model": "lora0"}), R("responses: unknown model", "/v1/responses", response | {"model": "nope"}),
        R("responses: no input", "/v1/responses", m), R("responses: unknown id", "/v1/responses/resp_nope"),
        R("messages: whole", "/v1/messages", message), R("messages: stream", "/v1/messages", message | {"stream": True}),
        R("messages: adapter", "/v1/messages", message | {"model": "lora0"}), R("messages: unknown model", "/v1/messages", message | {"model": "nope"}),
        R("messages: no max_tokens", "/v1/messages", m | {"messages": message["messages"]}),
        R("messages: count", "/v1/messages/count_tokens", m | {"messages": message["messages"]}),
        R("embeddings", "/v1/embeddings", m | {"input": "hello"}), R("embeddings: unknown model", "/v1/embeddings", {"model": "nope", "input": "hello"}),
        R("score", "/v1/score", m | {"text_1": "a", "text_2": "b"}), R("score: plain", "/score", m | {"text_1": "a", "text_2": "b"}),
        R("rerank", "/v1/rerank", m | {"query": "a", "documents": ["b", "c"]}), R("pooling", "/pooling", m | {"input": "a"}),
        R("classify", "/classify", m | {"input": "a"}), R("transcriptions", "/v1/audio/transcriptions", m),
        R("tokenize", "/tokenize", m | {"prompt": "hello there"}), R("tokenize: chat", "/tokenize", m | {"messages": message["messages"]}),
        R("tokenize: unknown model", "/tokenize", {"model": "nope", "prompt": "hello"}), R("detokenize", "/detokenize", m | {"tokens": [5, 6]}),
        R("v1/tokenize", "/v1/tokenize", m | {"prompt": "hello there"}),
    ]


def generate():
    path, p = "/generate", {"input_ids": [5, 6, 7, 8], "sampling_params": {"max_new_tokens": 3, "temperature": 0}}

    def params(**more):
        return {"sampling_params": p["sampling_params"] | more}

    stream = {"stream": True}
    changes = {
        "ids": {}, "text": {"input_ids": None, "text": "hello there"}, "stream": stream, "rid": {"rid": "my-rid"}, "batch": {"input_ids": [[5, 6], [7, 8]]},
        "texts": {"input_ids": None, "text": ["a", "b"]}, "n 2": params(n=2), "adapter": {"lora_path": "lora0"}, "adapter, stream": stream | {"lora_path": "lora0"},
        "unknown adapter": {"lora_path": "nope"}, "unknown adapter, stream": stream | {"lora_path": "nope"}, "no ids": {"input_ids": []},
        "no ids, stream": stream | {"input_ids": []}, "both": {"text": "hello"}, "too long": {"input_ids": "@ids"}, "too long, stream": stream | {"input_ids": "@ids"},
        "max_new_tokens 0": params(max_new_tokens=0), "max_new_tokens -1": params(max_new_tokens=-1),
        "max_new_tokens -1, stream": stream | params(max_new_tokens=-1), "max_new_tokens ten": params(max_new_tokens="ten"),
        "max_new_tokens 100000": params(max_new_tokens=100000) | {"input_ids": [5] * 2040}, "logprobs": {"return_logprob": True},
        "temperature -1": params(temperature=-1), "stream yes": {"stream": "yes"}, "unknown field": {"nonsense": 5},
        "stop": params(stop=["never said"]), "abort": stream | params(max_new_tokens=200, ignore_eos=True),
    }
    found = [R(f"generate: {name}", path, p | change) for name, change in changes.items()]
    found[-1]["events"] = 3
    found.append(R("generate: neither", path, {"sampling_params": {"max_new_tokens": 3}}))
    found.append(R("generate: open body", path, raw='{"text": "a"'))
    return found


def adapters(engine):
    load, unload = ("/v1/load_lora_adapter", "/v1/unload_lora_adapter") if engine == "vllm" else ("/load_lora_adapter", "/unload_lora_adapter")
    path = "@path/lora9"
    found = [
        R("load", load, {"lora_name": "extra", "lora_path": path}), R("load: again", load, {"lora_name": "extra", "lora_path": path}),
        R("load: other path", load, {"lora_name": "extra", "lora_path": "@path/lora8"}),
        R("load: in place", load, {"lora_name": "extra", "lora_path": path, "load_inplace": True}),
        R("load: listed", "/v1/models"), R("load: missing path", load, {"lora_name": "gone", "lora_path": "@missing"}),
        R("load: no name", load, {"lora_path": path}), R("load: no path", load, {"lora_name": "gone"}), R("load: empty name", load, {"lora_name": "", "lora_path": path}),
        R("load: name of the base model", load, {"lora_name": "base", "lora_path": path}), R("load: colon", load, {"lora_name": "w:1", "lora_path": path}),
        R("load: nothing", load, {}), R("load: array", load, raw="[]"), R("load: open body", load, raw='{"lora_name": "x"'), R("load: GET", load),
        R("load: number", load, {"lora_name": 5, "lora_path": path}), R("load: pinned", load, {"lora_name": "pin", "lora_path": path, "pinned": True}),
        R("unload: pinned", unload, {"lora_name": "pin"}), R("unload", unload, {"lora_name": "extra"}), R("unload: again", unload, {"lora_name": "extra"}),
        R("unload: colon", unload, {"lora_name": "w:1"}), R("unload: no name", unload, {}), R("unload: unknown", unload, {"lora_name": "nope"}),
        R("unload: base model", unload, {"lora_name": "base"}), R("unload: GET", unload),
    ]
    for k in range(3, 9):  # more than there are places
        found.append(R(f"load: place {k}", load, {"lora_name": f"p{k}", "lora_path": f"@path/lora{k}"}))
    found.append(R("load: places listed", "/v1/models"))
    found.append(R("completions: first place", "/v1/completions", {"model": "lora0" if engine == "vllm" else "base:lora0", "prompt": [5, 6], "max_tokens": 2}))
    for k in range(3, 9):
        found.append(R(f"unload: place {k}", unload, {"lora_name": f"p{k}"}))
    return found


def pages():
    gets = ["/health", "/ping", "/ready", "/readyz", "/healthz", "/livez", "/v1/models", "/v1/models/base", "/v1/models/nope", "/version", "/load", "/metrics", "/",
            "/server_info", "/get_server_info", "/model_info", "/get_model_info", "/v1/loads", "/get_load", "/health_generate", "/nothing", "/v1/nothing",
            "/v1/completions", "/generate", "/flush_cache"]
    found = [R(f"GET {p}", p) for p in gets]
    found += [R(f"POST {p}", p, {}) for p in ("/health", "/v1/models", "/nothing", "/flush_cache", "/reset_prefix_cache", "/abort_request", "/ping")]
    found.append(R("abort: unknown rid", "/abort_request", {"rid": "nope"}))
    found.append(R("abort: all", "/abort_request", {"abort_all": True}))
    found.append(R("HEAD /health", "/health", method="HEAD"))
    found.append(R("PUT /v1/completions", "/v1/completions", {}, method="PUT"))
    return found


def requests(engine):
    """What an idle engine is asked, one after the other. It has the adapters lora0, lora1 and v:1."""
    return pages() + completions(engine) + bodies() + chat() + other_forms() + generate() + adapters(engine)


def busy(engine):
    """What an engine is asked that runs two requests, has two that wait, and takes no others."""
    p = {"model": "base", "prompt": [5, 6, 7], "max_tokens": 3}
    c = {"model": "base", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}
    stream = {"stream": True}
    g = {"input_ids": [5, 6, 7], "sampling_params": {"max_new_tokens": 3}}
    return [
        R("completions", "/v1/completions", p), R("completions, stream", "/v1/completions", p | stream), R("completions, n 2", "/v1/completions", p | {"n": 2}),
        R("completions, adapter", "/v1/completions", p | {"model": "lora0" if engine == "vllm" else "base:lora0"}),
        R("completions, unknown model", "/v1/completions", p | {"model": "nope"}), R("completions, too long", "/v1/completions", p | {"prompt": "@ids"}),
        R("chat", "/v1/chat/completions", c), R("chat, stream", "/v1/chat/completions", c | stream), R("messages", "/v1/messages", c),
        R("responses", "/v1/responses", {"model": "base", "input": "hello", "max_output_tokens": 16}), R("generate", "/generate", g),
        R("generate, stream", "/generate", g | stream), R("health", "/health"), R("models", "/v1/models"), R("loads", "/v1/loads"),
    ]


def keyless():
    """What an engine with a key is asked without it, or with another one."""
    p = {"model": "base", "prompt": [5, 6, 7], "max_tokens": 3}
    found = [R(path, path) for path in ("/health", "/ping", "/v1/models", "/metrics", "/version", "/server_info", "/model_info", "/v1/loads", "/nothing")]
    for path in ("/v1/completions", "/generate", "/load_lora_adapter", "/v1/load_lora_adapter", "/tokenize", "/v1/messages"):
        found.append(R(path, path, p))
    found.append(R("wrong key", "/v1/completions", p, headers={"Authorization": "Bearer wrong"}))
    found.append(R("x-api-key", "/v1/completions", p, headers={"x-api-key": "secret"}))
    found.append(R("basic", "/v1/completions", p, headers={"Authorization": "Basic secret"}))
    found.append(R("lower case", "/v1/completions", p, headers={"Authorization": "bearer secret"}))
    return found


def draining():
    """What an engine is asked between SIGTERM and its end."""
    p = {"model": "base", "prompt": [5, 6, 7], "max_tokens": 3}
    found = [R(path, path) for path in ("/health", "/ready", "/ping", "/health_generate", "/v1/models", "/v1/loads", "/metrics", "/server_info")]
    found.append(R("completions", "/v1/completions", p))
    found.append(R("completions, stream", "/v1/completions", p | {"stream": True}))
    return found
