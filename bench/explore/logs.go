package explore

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"sync"
	"time"
)

// Logs are files in memory, for a page without a server: the logs that its user chose. It implements fs.FS. Unlike
// other file systems it takes any path. Its methods are safe for concurrent use.
type Logs struct {
	mu    sync.Mutex
	files map[string][]byte
}

// NewLogs returns an empty file system.
func NewLogs() *Logs { return &Logs{files: map[string][]byte{}} }

// Keep adds a file, or replaces it. The content must not change later.
func (l *Logs) Keep(name string, content []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.files[name] = content
}

// errNotKept is the error for a file that was not kept. It is an fs.ErrNotExist.
var errNotKept = fmt.Errorf("%w in this page: choose your log again", fs.ErrNotExist)

// Open implements fs.FS.
func (l *Logs) Open(name string) (fs.File, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	content, ok := l.files[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errNotKept}
	}
	return &keptFile{bytes.NewReader(content), name}, nil
}

// keptFile is an open file, and describes itself.
type keptFile struct {
	*bytes.Reader
	name string
}

func (f *keptFile) Stat() (fs.FileInfo, error) { return kept{f.name, f.Reader.Size()}, nil }
func (f *keptFile) Close() error               { return nil }

// kept describes a file.
type kept struct {
	name string
	size int64
}

func (k kept) Name() string       { return path.Base(k.name) }
func (k kept) Size() int64        { return k.size }
func (k kept) Mode() fs.FileMode  { return 0o400 }
func (k kept) ModTime() time.Time { return time.Time{} }
func (k kept) IsDir() bool        { return false }
func (k kept) Sys() any           { return nil }
