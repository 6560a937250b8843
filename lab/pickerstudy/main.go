// Pickerstudy compares configurations of endpoint pickers with other policies on the workloads of
// scenarios/pickers, before and after the weights are tuned: the tables and the picture of
// docs/picker-configs.md.
//
//	go run ./pickerstudy [--svg docs/img/picker-configs.svg] OUT
//
// OUT keeps the sweeps and the tuned configurations. The same command goes on where it was stopped.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"

	"lorasim/bench/scenario"
	"lorasim/bench/study/advise"
	"lorasim/bench/study/sweep"
	"lorasim/internal/atomicfile"
	"lorasim/lab/internal/repo"
)

// workloads are the studies in scenarios/pickers; tuned is the configuration to tune on each.
var workloads = []string{"skewed", "chat", "bursts", "lengths"}

const tuned = "kserve-lora.yaml"

// budget is the approximate number of requests that each search simulates.
const budget = 2_500_000

func main() {
	log.SetFlags(0)
	log.SetPrefix("pickerstudy: ")
	svg := flag.String("svg", "", "file of the picture")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: go run ./pickerstudy [--svg FILE] OUT")
		flag.PrintDefaults()
	}
	flag.Parse()
	out := flag.Arg(0)
	if out == "" || flag.NArg() > 1 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, out, *svg); err != nil {
		log.Fatal(err)
	}
}

// run tunes the configurations, runs the sweeps, and prints the tables.
func run(ctx context.Context, out, svg string) error {
	root, err := repo.Root(ctx)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o777); err != nil {
		return err
	}
	dir := filepath.Join(root, "scenarios", "pickers")
	for _, name := range workloads {
		text, err := tune(ctx, dir, name, out)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Printf("%s: %s\n", name, text)
	}
	var studies []*study
	for _, name := range workloads {
		s, err := measure(ctx, dir, name, out)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		studies = append(studies, s)
	}
	for _, s := range studies {
		fmt.Print("\n", s.markdown())
	}
	if svg == "" {
		return nil
	}
	return picture(svg, studies)
}

// tunedFile returns the name of the configuration tuned on a workload.
func tunedFile(out, workload string) string { return filepath.Join(out, "tuned-"+workload+".yaml") }

// tune searches the configuration on a workload at the higher rate, and returns a summary in words.
// If nothing is better, the file has the original configuration. The summary is saved beside the
// file.
func tune(ctx context.Context, dir, workload, out string) (string, error) {
	file := tunedFile(out, workload)
	words, err := os.ReadFile(file + ".txt")
	if err == nil {
		return string(words), nil
	}
	spec, err := sweep.LoadSpec(ctx, filepath.Join(dir, workload+".yaml"))
	if err != nil {
		return "", err
	}
	sc, err := near(spec)
	if err != nil {
		return "", err
	}
	objective, err := advise.ParseObjective("balanced")
	if err != nil {
		return "", err
	}
	config := "epp:file=" + filepath.Join(dir, tuned)
	a, err := advise.Find(ctx, &sc, advise.Options{Objective: objective, Policies: []string{config}, Search: true,
		Add: advise.DefaultAdd, MinGain: 2, Seeds: 20, Budget: budget})
	if err != nil {
		return "", err
	}
	t := a.Tuned[0]
	text, err := os.ReadFile(filepath.Join(dir, tuned))
	if t.Better() {
		text, err = t.Text(ctx, a.Comment(t)...)
	}
	if err != nil {
		return "", err
	}
	if err := write(file, text); err != nil {
		return "", err
	}
	said := a.TunedText(t)
	return said, write(file+".txt", []byte(said))
}

func write(path string, data []byte) error {
	return atomicfile.Write(path, func(f *atomicfile.File) error {
		_, err := f.Write(data)
		return err
	})
}

// near returns the scenario of a study at its highest rate, with seed 1. The seeds of the search
// differ from those of the study.
func near(spec *sweep.Spec) (scenario.Scenario, error) {
	sc := spec.Scenario
	for _, a := range spec.Axes {
		if err := sc.Set(a.Key, a.Values[len(a.Values)-1]); err != nil {
			return sc, err
		}
	}
	sc.Seed = 1
	return sc, nil
}

// measure runs the study of a workload with the tuned configurations of all workloads.
func measure(ctx context.Context, dir, workload, out string) (*study, error) {
	spec, err := sweep.LoadSpec(ctx, filepath.Join(dir, workload+".yaml"))
	if err != nil {
		return nil, err
	}
	s := &study{name: workload, about: spec.About}
	for _, p := range spec.Policies {
		s.add(label(ctx, p), p)
	}
	for _, w := range workloads {
		p := "epp:file=" + tunedFile(out, w)
		spec.Policies = append(spec.Policies, p)
		if w == workload {
			s.add("KServe, tuned", p)
		} else {
			s.add("KServe, tuned on "+w, p)
		}
	}
	m, err := spec.Plan(ctx)
	if err != nil {
		return nil, err
	}
	d, err := sweep.Create(filepath.Join(out, workload), m)
	if err != nil {
		return nil, err
	}
	if _, err := d.Run(ctx, sweep.RunOptions{}); err != nil {
		return nil, err
	}
	if s.tables, err = d.Merge(sweep.MergeOptions{}); err != nil {
		return nil, err
	}
	return s, s.check(ctx)
}
