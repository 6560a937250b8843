// Loracosts prints the tables of docs/lora-costs.md, and draws its picture: what the LoRA kernels of vLLM and sglang
// cost, from a folder of the GPU kit.
//
//	go run ./loracosts                                  # the tables of the H100
//	go run ./loracosts --dir DIR --plot costs.svg       # of another folder, with the picture
package main

import (
	"context"
	"encoding/csv"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"lorasim/lab/internal/repo"
)

// A row is a row of a CSV file by the names of its columns.
type row map[string]string

// number returns a column that read has checked.
func (r row) number(column string) float64 {
	x, _ := strconv.ParseFloat(r[column], 64)
	return x
}

// is reports whether columns have values, given as column, value, and so on.
func (r row) is(pairs ...string) bool {
	for i := 0; i < len(pairs); i += 2 {
		if r[pairs[i]] != pairs[i+1] {
			return false
		}
	}
	return true
}

// read reads a CSV file, of which some columns are numbers.
func read(path string, numbers []string) ([]row, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s is empty, expected a table with a header", path)
	}
	var rows []row
	for n, line := range all[1:] {
		r := row{}
		for i, column := range all[0] {
			r[column] = line[i]
		}
		for _, column := range numbers {
			if _, err := strconv.ParseFloat(r[column], 64); err != nil {
				return nil, fmt.Errorf("%s: row %d: %s is %q, expected a number", path, n+1, column, r[column])
			}
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// A kit holds the files of a folder of the GPU kit.
type kit struct{ kernels, loads, overlap []row }

func readKit(dir string) (k kit, err error) {
	for _, file := range []struct {
		name    string
		to      *[]row
		numbers []string
	}{
		{"kernels.csv", &k.kernels, []string{"tokens", "adapters", "rank", "lora_ms_step", "base_ms_step", "ratio"}},
		{"loads.csv", &k.loads, []string{"wall_ms"}},
		{"overlap.csv", &k.overlap, []string{"slowdown"}},
	} {
		if *file.to, err = read(filepath.Join(dir, file.name), file.numbers); err != nil {
			return k, err
		}
	}
	return k, nil
}

// backends are the kernels of the kit, in the order of tables.
var backends = []struct{ engine, name string }{
	{"vllm", "vLLM"}, {"sglang-csgmv", "sglang csgmv"}, {"sglang-triton", "sglang triton"},
}

// kernel returns the row of a configuration with CUDA graphs and equal parts of the adapters; nil if there is none.
func (k *kit) kernel(engine, model, phase string, tokens, adapters, rank, slots int, variant string) row {
	for _, r := range k.kernels {
		if r.is("engine", engine, "model", model, "phase", phase, "mode", "graph", "split", "equal", "variant", variant,
			"tokens", strconv.Itoa(tokens), "adapters", strconv.Itoa(adapters), "rank", strconv.Itoa(rank),
			"slots", strconv.Itoa(slots)) {
			return r
		}
	}
	return nil
}

// table writes a table in Markdown, the first texts columns of which are text.
func table(w io.Writer, texts int, head []string, rows [][]string) {
	fmt.Fprintf(w, "| %s |\n|%s%s\n", strings.Join(head, " | "), strings.Repeat("---|", texts),
		strings.Repeat("---:|", len(head)-texts))
	for _, r := range rows {
		fmt.Fprintf(w, "| %s |\n", strings.Join(r, " | "))
	}
	fmt.Fprintln(w)
}

// ms writes the LoRA of a step in ms, and "-" for a row that was not measured.
func ms(r row) string {
	if r == nil {
		return "-"
	}
	return strconv.FormatFloat(r.number("lora_ms_step"), 'f', 1, 64)
}

// llama is the model of the page.
const llama = "llama-3.1-8b"

var adapters = []int{1, 4, 16, 64}

// decode writes the cost of a decode step over adapters, for each backend and rank.
func (k *kit) decode(w io.Writer, model string, tokens int) {
	head := []string{"rank", "kernels", "1 adapter", "4 adapters", "16 adapters", "64 adapters", "base model"}
	var rows [][]string
	for _, rank := range []int{16, 64} {
		for _, b := range backends {
			line := []string{strconv.Itoa(rank), b.name}
			var base row
			for _, a := range adapters {
				base = k.kernel(b.engine, model, "decode", tokens, a, rank, a, "")
				line = append(line, ms(base))
			}
			rows = append(rows, append(line, strconv.FormatFloat(base.number("base_ms_step"), 'f', 1, 64)))
		}
	}
	table(w, 2, head, rows)
}

// prefill writes the cost of a step of prompts as a share of the base model's linear layers.
func (k *kit) prefill(w io.Writer, model string, tokens, prompts int) {
	head := []string{"kernels"}
	var rows [][]string
	for _, b := range backends {
		rows = append(rows, []string{b.name})
	}
	for _, rank := range []int{8, 16, 64, 128} {
		head = append(head, fmt.Sprintf("rank %d", rank))
		for i, b := range backends {
			r := k.kernel(b.engine, model, "prefill", tokens, prompts, rank, prompts, "")
			rows[i] = append(rows[i], fmt.Sprintf("%.0f %%", 100*r.number("ratio")))
		}
	}
	table(w, 1, head, rows)
}

// slots writes what slots without requests cost.
func (k *kit) slots(w io.Writer) {
	head := []string{"tokens, adapters, rank", "vLLM, no spare slot", "vLLM, 64 slots",
		"the same, `specialize_active_lora`",
		"sglang triton, no spare slot", "sglang triton, 64 slots"}
	var rows [][]string
	for _, c := range [][3]int{{16, 1, 16}, {64, 8, 16}, {256, 8, 16}, {64, 8, 64}} {
		t, a, rank := c[0], c[1], c[2]
		line := []string{fmt.Sprintf("%d, %d, %d", t, a, rank)}
		for _, x := range []struct {
			engine, variant string
			slots           int
		}{{"vllm", "", a}, {"vllm", "", 64}, {"vllm", "specialize", 64}, {"sglang-triton", "", a}, {"sglang-triton",
			"", 64}} {
			line = append(line, ms(k.kernel(x.engine, llama, "decode", t, a, rank, x.slots, x.variant)))
		}
		rows = append(rows, line)
	}
	table(w, 1, head, rows)
}

// loadTimes writes the times of loads of one adapter.
func (k *kit) loadTimes(w io.Writer) {
	ways := []struct{ stage, method, source, name string }{
		{"host_to_gpu", "vllm", "pinned", "vLLM, host to GPU"},
		{"host_to_gpu", "sglang-pin-each", "pageable", "sglang, host to GPU"},
		{"host_to_gpu", "packed", "pinned", "one copy of all matrices, host to GPU"},
		{"disk_to_host", "safetensors-pin", "cold", "vLLM, disk to host, first read"},
		{"disk_to_host", "safetensors-pin", "warm", "vLLM, disk to host, cached"},
		{"disk_to_host", "safetensors", "cold", "sglang, disk to host, first read"},
		{"disk_to_host", "safetensors", "warm", "sglang, disk to host, cached"},
	}
	ranks := []string{"16", "64", "128"}
	var rows [][]string
	for _, way := range ways {
		line := []string{way.name}
		for _, rank := range ranks {
			for _, r := range k.loads {
				if r.is("stage", way.stage, "method", way.method, "source", way.source, "model", llama, "rank",
					rank,
					"slot_rank", rank) {
					line = append(line, strconv.FormatFloat(r.number("wall_ms"), 'f', 1, 64))
				}
			}
		}
		rows = append(rows, line)
	}
	table(w, 1, []string{"ms of a load", "rank 16 (84 MB)", "rank 64 (336 MB)", "rank 128 (671 MB)"}, rows)
}

// slowdown writes how much longer steps of the base model take beside a load.
func (k *kit) slowdown(w io.Writer) {
	var all []float64
	for _, r := range k.overlap {
		all = append(all, r.number("slowdown"))
	}
	slices.Sort(all)
	fmt.Fprintf(w,
		"A load on a second stream makes decode steps %.1f %% longer in the median and %.1f %% at most (%d ways, "+
			"ranks 16 and 64, 16 and 128 tokens).\n", 100*(all[len(all)/2]-1), 100*(all[len(all)-1]-1), len(all))
}

// tables writes all tables of the page; those of slots and loads are of Llama-3.1-8B.
func (k *kit) tables(w io.Writer, model string) {
	k.decode(w, model, 64)
	k.prefill(w, model, 8192, 4)
	k.slots(w)
	k.loadTimes(w)
	k.slowdown(w)
}

// ours returns the folder of the measurements in this repository.
func ours(ctx context.Context, card string) (string, error) {
	root, err := repo.Root(ctx)
	return filepath.Join(root, "bench", "fidelity", "fit", "testdata", "kit", card), err
}

func main() {
	dir := flag.String("dir", "", "`folder` of the kit's files (default: the H100 of this repository)")
	model := flag.String("model", llama, "`model` of the first two tables: llama-3.1-8b or qwen3-14b")
	picture := flag.String("plot", "", "draw the picture into `file`, .svg or .png")
	flag.Parse()
	if err := run(context.Background(), *dir, *model, *picture); err != nil {
		fmt.Fprintln(os.Stderr, "loracosts:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir, model, picture string) (err error) {
	if dir == "" {
		if dir, err = ours(ctx, "h100"); err != nil {
			return err
		}
	}
	k, err := readKit(dir)
	if err != nil {
		return err
	}
	if k.kernel("vllm", model, "decode", 64, 1, 16, 1, "") == nil {
		return fmt.Errorf("--model: %s has no kernels of %q", dir, model)
	}
	k.tables(os.Stdout, model)
	if picture == "" {
		return nil
	}
	return k.draw(picture)
}
