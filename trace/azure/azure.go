// Package azure reads and writes the two public Azure Functions traces.
//
// The 2019 trace (format [V1], "Serverless in the Wild", USENIX ATC'20) holds
// one file a day, invocations_per_function_md.anon.dNN.csv, with the number of
// invocations of each function in each of the day's 1440 minutes. [Minutes]
// reads it.
//
// The 2021 trace (format [V2], "Faster and Cheaper Serverless Computing on
// Harvested Resources", SOSP'21) holds one file,
// AzureFunctionsInvocationTraceForTwoWeeksJan2021.txt, with one row per
// invocation. [Invocations] reads it. The trace is published as a .rar, which
// is read directly; so are files compressed with gzip.
//
//	r, err := azure.OpenInvocations("traces/", azure.Options{})
//	if err != nil {
//		return err
//	}
//	defer r.Close()
//	for {
//		v, err := r.Next()
//		if errors.Is(err, io.EOF) {
//			return nil
//		}
//		if err != nil {
//			return err
//		}
//		f := r.Functions()[v.Function]
//		fmt.Println(f.App, f.Func, v.Start())
//	}
//
// [ReadHistogram] reduces either to invocations per function and interval,
// which is all that most replays need. Both traces are published by the
// AzurePublicDataset under CC-BY 4.0.
package azure

import (
	"cmp"
	"fmt"
	"strings"
)

// Format names one of the two schemas.
type Format string

// The formats.
const (
	V1 Format = "azure_v1" // invocations per function and minute, 2019
	V2 Format = "azure_v2" // one row per invocation, 2021
)

// ParseFormat reads the name of a format.
func ParseFormat(s string) (Format, error) {
	switch f := Format(s); f {
	case V1, V2:
		return f, nil
	}
	return "", fmt.Errorf("unknown trace %q: expected %s or %s", s, V1, V2)
}

// Function identifies a function of a trace by its hashed names. Functions of
// different applications may share a name.
type Function struct {
	Owner string // empty in V2
	App   string
	Func  string
}

// Compare orders functions by owner, application and name.
func (f Function) Compare(g Function) int {
	return cmp.Or(strings.Compare(f.Owner, g.Owner), strings.Compare(f.App, g.App), strings.Compare(f.Func, g.Func))
}

// Options say how to read.
type Options struct {
	// SkipBadRows passes over malformed rows instead of failing at the first
	// one; the readers count them. A bad header or an unreadable file remains
	// an error.
	SkipBadRows bool
	// Progress, if not nil, is called about every megabyte and at the end with
	// the bytes read so far and the bytes to read in all, both of the files as
	// they lie on disk; its error ends the reading.
	Progress func(read, total int64) error
}

// functions numbers the functions of a trace in the order of first appearance.
type functions struct {
	byKey map[string]int32
	list  []Function
}

// index returns the number of the function whose row starts with key, the
// comma-separated names; columns is their number.
func (fs *functions) index(key []byte, columns int) int32 {
	if i, ok := fs.byKey[string(key)]; ok { // does not allocate
		return i
	}
	if fs.byKey == nil {
		fs.byKey = make(map[string]int32)
	}
	k := string(key)
	names := strings.SplitN(k, ",", columns)
	f := Function{App: names[columns-2], Func: names[columns-1]}
	if columns == 3 {
		f.Owner = names[0]
	}
	i := int32(len(fs.list))
	fs.byKey[k] = i
	fs.list = append(fs.list, f)
	return i
}
