package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
)

const usage = `eppjudge COMMAND
  load CONFIG...            load each EndpointPickerConfig and print it as the loader completes it
  run -configs DIR          read cases (JSON Lines) on stdin, print them with what came out
  record -configs DIR -out DIR -seed N   make the cases
  transcripts -configs DIR -out DIR      record what the ext_proc server answers
  verify -configs DIR FILE...            run recorded cases again and compare
  serve CONFIG -listen :9002 -endpoints HOST:PORT,...   an ext_proc server with these endpoints
  metrics [-engine NAME]    read Prometheus text on stdin, print what the extractor makes of it`

func main() {
	if err := command(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "eppjudge:", err)
		os.Exit(1)
	}
}

func command(args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	fs := flag.NewFlagSet(args[0], flag.ExitOnError)
	configs := fs.String("configs", "configs", "folder of the configurations that cases name")
	out := fs.String("out", ".", "folder to write to")
	seed := fs.Uint64("seed", 1, "seed of the cases")
	listen := fs.String("listen", "127.0.0.1:9002", "address of the ext_proc server")
	endpoints := fs.String("endpoints", "", "workers, HOST:PORT,...")
	engine := fs.String("engine", "", "engine whose metric names apply (default: the picker's own)")
	rest := args[1:]
	var first string
	if args[0] == "serve" && len(rest) > 0 {
		first, rest = rest[0], rest[1:]
	}
	fs.Parse(rest)
	read := func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(*configs, name)) }
	switch args[0] {
	case "load":
		for _, f := range fs.Args() {
			y, err := os.ReadFile(f)
			if err != nil {
				return err
			}
			e, err := newEngine(y, 0, false, false)
			if err != nil {
				fmt.Printf("%s: REFUSED: %v\n", f, err)
				continue
			}
			fmt.Printf("%s: %s\n", f, e.Effective)
			e.Close()
		}
	case "run":
		in := json.NewDecoder(bufio.NewReader(os.Stdin))
		w := bufio.NewWriter(os.Stdout)
		defer w.Flush()
		for {
			var c Case
			if err := in.Decode(&c); err == io.EOF {
				return nil
			} else if err != nil {
				return err
			}
			if err := RunCase(read, &c); err != nil {
				return err
			}
			if err := json.NewEncoder(w).Encode(c); err != nil {
				return err
			}
		}
	case "record":
		return record(read, *out, *seed)
	case "transcripts":
		return transcripts(read, *out)
	case "verify":
		return verify(read, fs.Args())
	case "serve":
		return serve(first, *listen, *endpoints)
	case "metrics":
		return metricsCmd(*engine)
	default:
		return errors.New(usage)
	}
	return nil
}

func verify(read func(string) ([]byte, error), files []string) error {
	n, bad := 0, 0
	for _, f := range files {
		r, err := os.Open(f)
		if err != nil {
			return err
		}
		d := json.NewDecoder(bufio.NewReader(r))
		for {
			var c Case
			if err := d.Decode(&c); err == io.EOF {
				break
			} else if err != nil {
				return err
			}
			want, _ := json.Marshal(c)
			if err := RunCase(read, &c); err != nil {
				return err
			}
			got, _ := json.Marshal(c)
			n++
			if !reflect.DeepEqual(want, got) {
				bad++
				fmt.Printf("%s differs:\n%s\n%s\n", c.ID, want, got)
			}
		}
		r.Close()
	}
	fmt.Printf("%d cases, %d differ\n", n, bad)
	if bad > 0 {
		return errors.New("cases differ")
	}
	return nil
}
