package cli

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"lorasim/internal/format"
	"lorasim/internal/textfile"
	"lorasim/sim/profile"
)

func newProfile() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "profile",
		Short: "List, show, compute, compare, fit and check worker profiles",
		Example: "  lorasim profile list\n  lorasim profile show llama-2-7b-rtx-4090-sglang-0.5 > mine.yaml\n" +
			"  lorasim profile compare analytic:llama-2-7b,rtx-4090 llama-2-7b-rtx-4090-sglang-0.5",
	}
	cmd.AddCommand(newProfileList(), newProfileCompute(), newProfileCompare(), newProfileFit(), newProfileCheck(),
		&cobra.Command{
			Use:   "show NAME|FILE",
			Short: "Print a profile with all its settings, as a file to change and use",
			Args:  cobra.ExactArgs(1),

			ValidArgsFunction: completeProfiles,
			RunE: func(cmd *cobra.Command, args []string) error {
				p, err := profile.Load(cmd.Context(), args[0])
				if err != nil {
					return usage(err)
				}
				describe(cmd.OutOrStdout(), p)
				return writeYAML(cmd, p)
			},
		})
	return cmd
}

// listedProfile is a row of profile list.
type listedProfile struct {
	Name     string   `json:"name"`
	Aliases  []string `json:"aliases,omitempty"`
	Model    string   `json:"model"`
	GPU      string   `json:"gpu"`
	KVTokens int64    `json:"kv_tokens"`
	profile.Provenance
}

func newProfileList() *cobra.Command {
	var wide bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the embedded profiles",
		Long: `List prints the embedded profiles and what each rests on:

  measured    fitted to runs of this hardware and engine, and validated on held-out runs
  calibrated  fitted to runs, but validated on fewer than three held-out runs
  computed    from data sheets or publications; compared with no measured run`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := listedProfiles()
			if err != nil {
				return err
			}
			return show(cmd, inTable(profileRows(list, wide)), inJSON(list, ""))
		},
	}
	jsonFlag(cmd, "Print as JSON")
	flags(cmd, "", opt(&wide, "wide", false,
		"Also print model, aliases and KV tokens, and all words on engine and validation"))
	return cmd
}

func listedProfiles() (list []listedProfile, err error) {
	for _, name := range profile.Names() {
		p, err := profile.Embedded(name)
		if err != nil {
			return nil, err
		}
		kv, err := p.KVTokens()
		if err != nil {
			return nil, err
		}
		list = append(list, listedProfile{name, profile.Aliases(name), p.Model, p.GPU, kv, p.Provenance()})
	}
	return list, nil
}

// profileRows returns the rows of profile list. Unless wide, engine and validation end at the first
// comma.
func profileRows(list []listedProfile, wide bool) [][]string {
	head := []string{"NAME", "KIND", "HARDWARE", "ENGINE", "VALIDATED ON"}
	if wide {
		head = append(head, "MODEL", "ALIASES", "KV TOKENS")
	}
	rows := [][]string{head}
	for _, p := range list {
		row := []string{p.Name, string(p.Kind), p.Hardware, p.Engine, cmp.Or(p.ValidatedOn, "-")}
		if wide {
			row = append(row, p.Model, cmp.Or(strings.Join(p.Aliases, " "), "-"), strconv.FormatInt(p.KVTokens, 10))
		} else {
			row[3], _, _ = strings.Cut(row[3], ",")
			row[4], _, _ = strings.Cut(row[4], ",")
		}
		rows = append(rows, row)
	}
	return rows
}

// describe prints the sources of a profile, as a comment above its settings.
func describe(w io.Writer, p *profile.Profile) {
	v := p.Provenance()
	fmt.Fprintf(w, "# %s; hardware: %s; engine: %s\n", v, v.Hardware, v.Engine)
	fmt.Fprintf(w, "# validated on: %s\n", cmp.Or(v.ValidatedOn, "no run"))
	fmt.Fprintf(w, "# LoRA costs time %s\n", p.Latency.LoRASteps())
}

// noteProfiles prints a note for each profile that was not compared with a measured run, or that
// has changed since its validation.
func noteProfiles(cmd *cobra.Command, ps []*profile.Profile) {
	var said []string
	for i, p := range ps {
		if slices.Contains(ps[:i], p) { // workers share profiles
			continue
		}
		if note := p.Provenance().Note(p.Name); note != "" && !slices.Contains(said, note) {
			said = append(said, note)
			say(cmd, "note: %s", note)
		}
	}
}

func newProfileCompute() *cobra.Command {
	a := profile.NewAnalytic("llama-3.1-8b", "h100")
	var list bool
	cmd := &cobra.Command{
		Use:   "compute",
		Short: "Compute a profile from the data sheets of a model and a GPU",
		Long: `Compute derives a profile from the roofline: a step takes the longer of reading
the weights and computing its tokens, at the rates that the GPU's kernels reach. It
adds the starts of the kernels, the KV cache, exchanges between GPUs, the engine's own
time, and the adapters of a step (weights and computation, by rank). For a mixture of
experts it adds the experts that the tokens of a step are expected to use.

No run of your server was measured: the kind of the profile is computed. Measured TPOT
is within 4 to 8 % in the median, by model, GPU and engine (docs/accuracy.md). Compare
policies with it; fit it before you size a cluster: lorasim profile fit.`,
		Example: `  lorasim profile compute --list
  lorasim profile compute --model llama-3.1-8b --gpu h100 > mine.yaml
  lorasim profile compute --model deepseek-v3 --gpu h200 --tp 8
  lorasim profile compute --model llama-2-7b --gpu rtx-4090 | lorasim profile compare - llama-2-7b-rtx-4090-sglang-0.5`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if list {
				return listHardware(cmd)
			}
			p, err := a.Profile()
			if err != nil {
				return usage(err)
			}
			return writeYAML(cmd, p)
		},
	}
	flags(cmd, "",
		opt(&a.Model, "model", a.Model, "Model (see --list)"),
		opt(&a.GPU, "gpu", a.GPU, "GPU (see --list)"),
		opt(&a.TP, "tp", 0, "Number of GPUs that share the model; 0: the smallest power of 2 that holds it",
			">=0 <=1024"),
		opt(&a.Bits, "bits", 0, "Bits of a weight: 16, 8 or 4; 0: as the model is published", ">=0 <=32"),
		opt(&a.KVBits, "kv-bits", 0, "Bits of a value of the KV cache: 16 or 8; 0: as the engine does", ">=0 <=32"),
		opt(&a.Engine, "engine", a.Engine, "Engine whose times a step has: "+strings.Join(profile.Engines(), ", ")),
		opt(&a.MemoryShare, "memory-share", a.MemoryShare, "Share of the GPU memory that the engine uses", ">0 <=1"),
		opt(&list, "list", false, "List the known models and GPUs"))
	return cmd
}

func listHardware(cmd *cobra.Command) error {
	tw := format.Columns(cmd.OutOrStdout())
	fmt.Fprintln(tw, "MODEL\tWEIGHTS 10^9\tACTIVE 10^9\tKV BYTES/TOKEN\tLORA BYTES/RANK")
	for _, m := range profile.Architectures() {
		fmt.Fprintf(tw, "%s\t%.1f\t%.1f\t%.0f\t%.0f\n", m.Name, m.Parameters()/1e9, m.Active()/1e9, m.KVBytes(),
			m.LoRABytesPerRank())
	}
	fmt.Fprintln(tw, "\nGPU\tTFLOP/S 16 BIT\tTFLOP/S 8 BIT\tGB/S\tGiB")
	for _, g := range profile.GPUs() {
		fmt.Fprintf(tw, "%s\t%.0f\t%.0f\t%.0f\t%.0f\n", g.Name, g.TFLOPS16, g.TFLOPS8, g.GBPerS, g.MemoryGiB)
	}
	return tw.Flush()
}

func newProfileCompare() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "compare A B",
		Short: "Print the coefficients of two profiles side by side",
		Long: `Compare prints the coefficients and capacities of two profiles and how far the
first is off the second. A profile is a name, a file, - for one on standard
input, or analytic:MODEL,GPU for an analytic one.`,
		Example: `  lorasim profile compare analytic:llama-2-7b,rtx-4090 llama-2-7b-rtx-4090-sglang-0.5
  lorasim profile compare mine.yaml llama-2-7b-rtx-4090-sglang-0.5`,
		Args: cobra.ExactArgs(2),

		ValidArgsFunction: completeProfiles,
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
			rows := [][]string{{"", a.Name, b.Name, "DIFFERENCE"}}
			for _, d := range ds {
				diff := "-"
				if !math.IsNaN(d.Relative) {
					diff = fmt.Sprintf("%+.0f %%", 100*d.Relative)
				}
				rows = append(rows, []string{d.Name + ", " + d.Unit, fmt.Sprintf("%.5g", d.A), fmt.Sprintf("%.5g", d.B),
					diff})
			}
			return show(cmd, inTable(rows), inJSON(map[string]any{"a": a.Name, "b": b.Name, "differences": ds}, ""))
		},
	}
	jsonFlag(cmd, "Print as JSON")
	return cmd
}

// loadAny loads a profile by any name that compare accepts.
func loadAny(cmd *cobra.Command, name string) (*profile.Profile, error) {
	if name == "-" {
		data, err := textfile.ReadAll(cmd.InOrStdin(), "stdin", textfile.MaxSettings)
		if err != nil {
			return nil, err
		}
		return profile.Parse(data, "on standard input")
	}
	return profile.Load(cmd.Context(), name)
}
