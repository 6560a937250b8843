package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"lorasim/sim/profile"
)

func newProfileAnalytic() *cobra.Command {
	a := profile.Analytic{Efficiency: profile.DefaultEfficiency()}
	var list bool
	cmd := &cobra.Command{
		Use:   "analytic",
		Short: "Compute an uncalibrated profile from a model's and a GPU's data sheet",
		Long: `Analytic computes how long steps take from the bytes that a decode step reads
and the FLOPs of a prefill, at usual shares of the GPU's peak rates. Nothing of
it was measured: the profile is marked as uncalibrated. lorasim calibrate turns
it into one that was.`,
		Example: `  lorasim profile analytic --list
  lorasim profile analytic --model llama-3.1-8b --gpu h100 > mine.yaml
  lorasim profile analytic --model deepseek-v3 --gpu h200 --tp 8
  lorasim profile analytic --model llama-2-7b --gpu rtx-4090 | lorasim profile compare - llama2-7b-24gb`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if list {
				return listHardware(cmd)
			}
			p, err := a.Profile()
			if err != nil {
				return usage(err)
			}
			text, err := p.YAML()
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&a.Model, "model", "llama-3.1-8b", "model (see --list)")
	fs.StringVar(&a.GPU, "gpu", "h100", "GPU (see --list)")
	fs.IntVar(&a.TP, "tp", 0, "GPUs that share the model; 0: as few as hold it")
	fs.IntVar(&a.Bits, "bits", 0, "bits of a weight: 16, 8 or 4; 0: as published")
	fs.Float64Var(&a.Bandwidth, "bandwidth-efficiency", a.Bandwidth, "share of the memory bandwidth that decoding reaches")
	fs.Float64Var(&a.Compute, "compute-efficiency", a.Compute, "share of the peak FLOP/s that prefill reaches")
	fs.Float64Var(&a.MemoryShare, "memory-share", a.MemoryShare, "share of the GPU's memory that the engine uses")
	within(cmd, ">=0 <=1024", "tp")
	within(cmd, ">=0 <=32", "bits")
	within(cmd, ">0 <=1", "bandwidth-efficiency", "compute-efficiency", "memory-share")
	fs.BoolVar(&list, "list", false, "list the known models and GPUs")
	return cmd
}

func listHardware(cmd *cobra.Command) error {
	tw := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "MODEL\tWEIGHTS 10^9\tACTIVE 10^9\tKV BYTES/TOKEN\tLORA BYTES/RANK")
	for _, m := range profile.Architectures() {
		fmt.Fprintf(tw, "%s\t%.1f\t%.1f\t%.0f\t%.0f\n", m.Name, m.Parameters()/1e9, m.Active()/1e9, m.KVBytes(), m.LoRABytesPerRank())
	}
	fmt.Fprintln(tw, "\nGPU\tTFLOP/S 16 BIT\tTFLOP/S 8 BIT\tGB/S\tGiB")
	for _, g := range profile.GPUs() {
		fmt.Fprintf(tw, "%s\t%.0f\t%.0f\t%.0f\t%.0f\n", g.Name, g.TFLOPS16, g.TFLOPS8, g.GBPerS, g.MemoryGiB)
	}
	return tw.Flush()
}

func newProfileCompare() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "compare A B",
		Short: "Print the coefficients of two profiles side by side",
		Long: `Compare prints the coefficients and capacities of two profiles and how far the
first is off the second. A profile is a name, a file, - for one on standard
input, or analytic:MODEL,GPU for an analytic one.`,
		Example: `  lorasim profile compare analytic:llama-2-7b,rtx-4090 llama2-7b-24gb
  lorasim profile compare mine.yaml llama2-7b-24gb`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := loadAny(cmd, args[0])
			if err != nil {
				return err
			}
			b, err := loadAny(cmd, args[1])
			if err != nil {
				return err
			}
			ds := profile.Compare(a, b)
			w := cmd.OutOrStdout()
			if asJSON {
				return json.NewEncoder(w).Encode(map[string]any{"a": a.Name, "b": b.Name, "differences": ds})
			}
			tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
			fmt.Fprintf(tw, "\t%s\t%s\tDIFFERENCE\n", a.Name, b.Name)
			for _, d := range ds {
				diff := "-"
				if !math.IsNaN(d.Relative) {
					diff = fmt.Sprintf("%+.0f %%", 100*d.Relative)
				}
				fmt.Fprintf(tw, "%s, %s\t%.5g\t%.5g\t%s\n", d.Name, d.Unit, d.A, d.B, diff)
			}
			return tw.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}

// loadAny loads a profile by any of the names that compare takes.
func loadAny(cmd *cobra.Command, name string) (*profile.Profile, error) {
	if name == "-" {
		data, err := io.ReadAll(cmd.InOrStdin())
		if err != nil {
			return nil, err
		}
		return profile.Parse(data, "on standard input")
	}
	return profile.Load(name)
}
