package store

import (
	"errors"
	"fmt"
	"io"

	"lorasim/internal/atomicfile"
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
	var n int64
	err = atomicfile.Write(path, func(f *atomicfile.File) error {
		n, err = encode(f, path, newEncoder, src, o)
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

type newEncoder func(io.WriteSeeker, []trace.Adapter, WriteOptions) (encoder, error)

func encoderOf(path string) (newEncoder, error) {
	switch format(path) {
	case ".csv":
		return func(w io.WriteSeeker, as []trace.Adapter, o WriteOptions) (encoder, error) {
			t := newTextWriter(w, as, o, appendCSV)
			_, err := t.w.Write(appendCSVHeader(nil, o))
			return t, err
		}, nil
	case ".jsonl":
		return func(w io.WriteSeeker, as []trace.Adapter, o WriteOptions) (encoder, error) {
			return newTextWriter(w, as, o, appendJSON), nil
		}, nil
	case ".parquet":
		return newParquetWriter, nil
	case ".arrow":
		return newArrowWriter, nil
	}
	return nil, unknownFormat(path)
}

// encode writes the whole source to w. path is for messages.
func encode(w io.WriteSeeker, path string, newEncoder newEncoder, src trace.Source, o WriteOptions) (int64, error) {
	adapters := src.Adapters()
	e, err := newEncoder(w, adapters, o)
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
