//go:build linux

package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"lorasim/lab/internal/process"
)

//go:embed envoy.yaml
var envoyConfig string

//go:embed config.yaml
var defaultConfig []byte

// way is a listener of Envoy.
type way struct {
	Name   string
	Port   int
	Picker int // port; 0: none
}

func (w *way) url() string { return fmt.Sprintf("http://127.0.0.1:%d/v1/completions", w.Port) }

// cluster is Envoy with its pickers and servers.
type cluster struct {
	servers             []*server
	direct, ours, their way
	children            []*exec.Cmd
}

// freePorts returns n ports of loopback that are free now.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// startCluster starts servers, both pickers and Envoy, and waits until all are ready.
func startCluster(o *options) (c *cluster, err error) {
	c = &cluster{}
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	ports, err := freePorts(5)
	if err != nil {
		return c, err
	}
	c.direct, c.ours, c.their = way{"direct", ports[0], 0}, way{"lorasim", ports[1], ports[3]},
		way{"gie", ports[2], ports[4]}
	var addresses []string
	for range o.servers {
		s, err := startServer()
		if err != nil {
			return c, err
		}
		c.servers, addresses = append(c.servers, s), append(addresses, s.address)
	}
	file, err := c.writeEnvoy(o.folder)
	if err != nil {
		return c, err
	}
	all, children := strings.Join(addresses, ","), process.NewSpawner()
	for _, args := range [][]string{
		{o.lorasim, "gateway", "--ext-proc", "--worker-urls", all, "--policy", "epp:file=" + o.config, "--admin-listen",
			"none",
			"--listen", fmt.Sprintf("127.0.0.1:%d", c.ours.Picker), "--header", readerHeader + ": lorasim"},
		{o.eppjudge, "serve", o.config, "-listen", fmt.Sprintf("127.0.0.1:%d", c.their.Picker), "-endpoints", all},
		{o.envoy, "-c", file, "--concurrency", "1", "--use-dynamic-base-id", "-l", "error"},
	} {
		log, err := os.Create(filepath.Join(o.folder, filepath.Base(args[0])+".log"))
		if err != nil {
			return c, err
		}
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Stdout, cmd.Stderr = log, log
		if err := children.Start(cmd); err != nil {
			return c, fmt.Errorf("%s: %w", args[0], err)
		}
		c.children = append(c.children, cmd)
	}
	return c, c.await(o.folder)
}

// writeEnvoy writes Envoy's configuration.
func (c *cluster) writeEnvoy(folder string) (file string, err error) {
	var ports []string
	for _, s := range c.servers {
		_, port, _ := net.SplitHostPort(s.address)
		ports = append(ports, port)
	}
	var text bytes.Buffer
	if err := template.Must(template.New("envoy").Parse(envoyConfig)).Execute(&text, map[string]any{
		"Servers": ports, "Ways": []way{c.direct, c.ours, c.their}}); err != nil {
		return "", err
	}
	file = filepath.Join(folder, "envoy.yaml")
	return file, os.WriteFile(file, text.Bytes(), 0o600)
}

// await waits until each way serves a request.
func (c *cluster) await(folder string) error {
	const limit = 60 * time.Second
	var client clientOf
	for _, w := range []*way{&c.direct, &c.ours, &c.their} {
		for end := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
			r := client.post(w, []byte(`{"model":"base","prompt":"x","max_tokens":1}`))
			if r.err == nil {
				break
			}
			if time.Now().After(end) {
				logs, _ := exec.Command("sh", "-c", "tail -n 5 "+folder+"/*.log").Output()
				return fmt.Errorf("after %v Envoy does not serve %s: %w\n%s", limit, w.Name, r.err, logs)
			}
		}
	}
	return nil
}

// stop ends all.
func (c *cluster) stop() {
	for _, cmd := range c.children {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	for _, s := range c.servers {
		_ = s.http.Close()
	}
}
