// Web creates the explorer without a server, as a folder of static files. It has the page of
// lorasim explore, with the simulator as WebAssembly in a Web Worker. Any web server can serve it.
//
//	go run ./scripts/web bin/web
package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"lorasim/bench/pages"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: web FOLDER")
	}
	size, err := build(os.Args[1])
	if err != nil {
		log.Fatal("web: ", err)
	}
	fmt.Printf("%s: %.1f MB, compressed\n", os.Args[1], float64(size)/1e6)
}

// program is the folder of the parts that replace the server, relative to the root of the module.
const program = "cmd/lorasim-web"

// build writes the folder and returns the compressed size of its files, bytes.
func build(out string) (size int64, err error) {
	root, err := output(exec.Command("go", "list", "-m", "-f", "{{.Dir}}"))
	if err != nil {
		return 0, err
	}
	goroot, err := output(exec.Command("go", "env", "GOROOT"))
	if err != nil {
		return 0, err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return 0, err
	}
	for name, data := range pages.Explorer.Files() {
		if err := os.WriteFile(filepath.Join(out, name), data, 0o644); err != nil {
			return 0, err
		}
	}
	for from, to := range map[string]string{
		filepath.Join(root, program, "api.js"):               "api.js", // replaces the file for a server
		filepath.Join(root, program, "worker.js"):            "worker.js",
		filepath.Join(goroot, "lib", "wasm", "wasm_exec.js"): "wasm_exec.js",
	} {
		if err := cp(from, filepath.Join(out, to)); err != nil {
			return 0, err
		}
	}
	if err := compile(root, filepath.Join(out, "lorasim.wasm.gz")); err != nil {
		return 0, err
	}
	return compressed(out)
}

func output(cmd *exec.Cmd) (string, error) {
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", cmd, err)
	}
	return strings.TrimSpace(string(out)), nil
}

func cp(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}

// compile builds the program for browsers, compressed: not every web server compresses files.
func compile(root, out string) error {
	dir, err := os.MkdirTemp("", "lorasim-web-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	plain := filepath.Join(dir, "lorasim.wasm")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", plain, "./"+program)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "GOOS=js", "GOARCH=wasm", "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, text)
	}
	data, err := os.ReadFile(plain)
	if err != nil {
		return err
	}
	packed, err := pack(data)
	if err != nil {
		return err
	}
	return os.WriteFile(out, packed, 0o644)
}

func pack(data []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	err = w.Close()
	return b.Bytes(), err
}

// compressed returns the size of a folder's files, each compressed, bytes.
func compressed(folder string) (size int64, err error) {
	err = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !strings.HasSuffix(path, ".gz") {
			if data, err = pack(data); err != nil {
				return err
			}
		}
		size += int64(len(data))
		return nil
	})
	return size, err
}
