package store

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"lorasim/trace"
)

// WriteOptions of Write. They concern CSV and JSONL; Parquet and Arrow files
// always hold everything.
type WriteOptions struct {
	MaxNew bool // write the column max_new_tokens
	Ranks  bool // write the column rank
}

// encoder writes the requests of one file.
type encoder interface {
	write(trace.Request) error
	close() error // writes what is buffered, but does not close the file
}

// Write saves a workload and returns the number of requests. The file appears
// under its name only when it is complete: on an error nothing is left behind
// and a file that was there before is kept. Requests are checked as in reading,
// and so is that there is at least one. Without WriteOptions.MaxNew a request
// whose max_new_tokens differs from its output tokens is an error in CSV and
// JSONL.
//
// The same requests give the same bytes.
func Write(path string, src trace.Source, o WriteOptions) (int64, error) {
	newEncoder, err := encoderOf(path)
	if err != nil {
		return 0, err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return 0, err
	}
	renamed := false
	defer func() { // also after a panic
		if !renamed {
			tmp.Close()
			os.Remove(tmp.Name())
		}
	}()
	n, err := encode(tmp, path, newEncoder, src, o)
	if err != nil {
		return 0, err
	}
	if err := tmp.Chmod(0o644); err != nil { // CreateTemp lets only the owner in
		return 0, err
	}
	if err := tmp.Close(); err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return 0, err
	}
	renamed = true
	return n, nil
}

type newEncoder func(*os.File, []trace.Adapter, WriteOptions) (encoder, error)

func encoderOf(path string) (newEncoder, error) {
	switch format(path) {
	case ".csv":
		return func(f *os.File, as []trace.Adapter, o WriteOptions) (encoder, error) {
			w := bufio.NewWriterSize(f, 1<<20)
			_, err := w.Write(appendCSVHeader(nil, o))
			return &textWriter{w: w, adapters: as, o: o, add: appendCSV}, err
		}, nil
	case ".jsonl":
		return func(f *os.File, as []trace.Adapter, o WriteOptions) (encoder, error) {
			return &textWriter{w: bufio.NewWriterSize(f, 1<<20), adapters: as, o: o, add: appendJSON}, nil
		}, nil
	case ".parquet":
		return newParquetWriter, nil
	case ".arrow":
		return newArrowWriter, nil
	}
	return nil, unknownFormat(path)
}

// encode writes the whole source to a file. path is for messages.
func encode(f *os.File, path string, newEncoder newEncoder, src trace.Source, o WriteOptions) (int64, error) {
	adapters := src.Adapters()
	e, err := newEncoder(f, adapters, o)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	c := checker{adapters: len(adapters)}
	for {
		r, err := src.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, err
		}
		if err := c.check(r); err != nil {
			return 0, fmt.Errorf("%s: request %d: %w", path, c.n, err)
		}
		if err := e.write(r); err != nil {
			return 0, fmt.Errorf("%s: request %d: %w", path, c.n-1, err)
		}
	}
	if c.n == 0 {
		return 0, fmt.Errorf("%s: %w", path, errEmpty)
	}
	if err := e.close(); err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return c.n, nil
}
