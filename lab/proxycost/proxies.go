//go:build linux

package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"text/template"
	"time"

	"lorasim/lab/internal/process"
)

var (
	//go:embed envoy.yaml
	envoyConfig string
	//go:embed nginx.conf
	nginxConfig string
)

// proxy is a proxy before the worker.
type proxy struct {
	*process.Process
	name string
	url  string
}

// startLimit is the longest time until a proxy serves a request.
const startLimit = 30 * time.Second

// startProxy starts a proxy, which prints its URL, and waits until it serves.
func startProxy(children *process.Spawner, name string, args []string) (*proxy, error) {
	child, err := children.Serve(process.Pipes{}, args[0], args[1:]...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	p := &proxy{child, name, child.URL(0, 0)}
	var client http.Transport
	defer client.CloseIdleConnections()
	for end := time.Now().Add(startLimit); ; time.Sleep(20 * time.Millisecond) {
		_, err := ask(&client, p.url, 1)
		if err == nil {
			return p, nil
		}
		if time.Now().After(end) || !child.Alive() {
			p.Kill()
			return nil, fmt.Errorf("%s does not serve: %w: %s", name, err, child.Reason())
		}
	}
}

// measure sends requests and returns the proxy's processor time per request, in µs, and the mean number of parts in
// which a reply came.
func (p *proxy) measure(o *options) (cpu, parts float64, err error) {
	client := http.Transport{MaxIdleConnsPerHost: o.clients}
	defer client.CloseIdleConnections()
	if _, err := askMany(&client, p.url, o, 4*o.clients); err != nil { // opens connections
		return 0, 0, err
	}
	before := p.CPU()
	n, err := askMany(&client, p.url, o, o.requests)
	took := p.CPU() - before
	return float64(took.Microseconds()) / float64(o.requests), float64(n) / float64(o.requests), err
}

// askMany sends n requests in all, and returns the number of parts of the replies.
func askMany(client *http.Transport, url string, o *options, n int) (parts int, err error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	for k := range o.clients {
		wg.Go(func() {
			for i := k; i < n; i += o.clients {
				got, failed := ask(client, url, o.tokens)
				mu.Lock()
				if parts += got; failed != nil {
					err = failed
				}
				mu.Unlock()
				if failed != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return parts, err
}

// prompt has 64 tokens.
var prompt = "[" + strings.Repeat("1234, ", 63) + "1]"

// ask sends a streamed request and reads its reply. It returns the number of parts in which the reply came.
func ask(client *http.Transport, url string, tokens int) (parts int, err error) {
	body := fmt.Sprintf(`{"model": "lora0", "prompt": %s, "max_tokens": %d, "ignore_eos": true, "stream": true}`,
		prompt, tokens)
	req, err := http.NewRequest(http.MethodPost, url+"/v1/completions", strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text := make([]byte, 0, 16<<10)
	for err == nil && len(text) < cap(text) {
		var n int
		if n, err = resp.Body.Read(text[len(text):cap(text)]); n > 0 {
			parts++
			text = text[:len(text)+n]
		}
	}
	if err != io.EOF || resp.StatusCode != http.StatusOK || !bytes.HasSuffix(text, []byte("data: [DONE]\n\n")) {
		return parts, fmt.Errorf("status %d, %w: %.200s", resp.StatusCode, err, text)
	}
	return parts, nil
}

// listen returns the address of the worker and a listener for clients, whose address it prints.
func listen(worker string) (to *url.URL, l net.Listener, err error) {
	if to, err = url.Parse(worker); err != nil {
		return nil, nil, err
	}
	if l, err = net.Listen("tcp", "127.0.0.1:0"); err == nil {
		fmt.Printf("listening on http://%s\n", l.Addr())
	}
	return to, l, err
}

const reverseRole = "reverse-proxy"

// reverse serves as a reverse proxy of the standard library before the worker.
func reverse(worker string) error {
	to, l, err := listen(worker)
	if err != nil {
		return err
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost, t.DisableCompression = 256, true
	proxy := httputil.ReverseProxy{Transport: t, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	return http.Serve(l, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		// else the server may close the body before the transport has seen its end, which cuts the reply
		if err := http.NewResponseController(rw).EnableFullDuplex(); err != nil {
			http.Error(rw, err.Error(), http.StatusInternalServerError)
			return
		}
		proxy.ServeHTTP(rw, r)
	}))
}

const relayRole = "relay"

// relay passes bytes between clients and the worker, without a look at them: the least that a proxy in Go can cost.
func relay(worker string) error {
	to, l, err := listen(worker)
	if err != nil {
		return err
	}
	for {
		client, err := l.Accept()
		if err != nil {
			return err
		}
		server, err := net.Dial("tcp", to.Host)
		if err != nil {
			return err
		}
		go pass(server, client)
		go pass(client, server)
	}
}

// pass copies bytes with a read and a write for each part, and closes both connections at the end.
func pass(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// configured writes the configuration of Envoy or nginx and returns the command that prints the URL and runs the
// program in its place.
func configured(folder, program, config, worker string) ([]string, error) {
	to, err := url.Parse(worker)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	_, port, _ := net.SplitHostPort(address)
	if err := l.Close(); err != nil {
		return nil, err
	}
	var text bytes.Buffer
	if err := template.Must(template.New("").Parse(config)).Execute(&text,
		map[string]string{"Folder": folder, "Port": port, "Worker": to.Port()}); err != nil {
		return nil, err
	}
	file := filepath.Join(folder, filepath.Base(program)+".config")
	if strings.HasPrefix(config, "#") { // Envoy tells formats by their names' ends
		file += ".yaml"
	}
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		return nil, err
	}
	args := []string{"/bin/sh", "-c", `echo "$0"; exec "$@"`, "http://" + address, program, "-c", file}
	if strings.HasSuffix(file, ".yaml") {
		args = append(args, "--concurrency", "1", "--use-dynamic-base-id", "-l", "error")
	}
	return args, nil
}
