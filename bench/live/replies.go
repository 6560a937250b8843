package live

import (
	"bufio"
	"encoding/json"

	"lorasim/internal/atomicfile"
)

// repliesFile is a file with a line for each reply, {"id": 3, "tokens": [5, 6]},
// in the order in which they end.
type repliesFile struct {
	file *atomicfile.File
	w    *bufio.Writer
	err  error // the first
}

func createReplies(path string) (*repliesFile, error) {
	file, err := atomicfile.Create(path)
	if err != nil {
		return nil, err
	}
	return &repliesFile{file: file, w: bufio.NewWriter(file)}, nil
}

// add is for Config.Output.
func (f *repliesFile) add(id int64, tokens []int32) {
	err := json.NewEncoder(f.w).Encode(struct {
		ID     int64   `json:"id"`
		Tokens []int32 `json:"tokens"`
	}{id, append([]int32{}, tokens...)})
	if f.err == nil {
		f.err = err
	}
}

func (f *repliesFile) close() error {
	if err := f.w.Flush(); f.err == nil {
		f.err = err
	}
	if f.err != nil {
		return f.err
	}
	return f.file.Commit()
}

func (f *repliesFile) abort() { f.file.Abort() }
