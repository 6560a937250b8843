package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"lorasim/bench/result"
)

const outputHeading = "Output"

// outputFlags say how a result is printed and saved.
type outputFlags struct {
	json    bool
	classic bool
	layout  string
	goodput string
	file    string
	details bool
}

func (o *outputFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.BoolVar(&o.json, "json", false, "print the result as one JSON object")
	fs.BoolVar(&o.classic, "classic", false, "print the reference's block alone, without the extra section")
	fs.StringVar(&o.layout, "layout", string(result.SGLang), "layout of the block: sglang-0.5.4, sglang-0.5.6, lora, sglang")
	fs.StringVar(&o.goodput, "goodput", "", "count requests within an SLO in ms, such as \"ttft:500 tpot:50 e2e:5000\"")
	fs.StringVar(&o.file, "output-file", "", "append the result to `file` as a JSON line of the serving benchmarks")
	fs.BoolVar(&o.details, "output-details", false, "with per-request arrays in that line")
	group(cmd, outputHeading, "json", "classic", "layout", "goodput", "output-file", "output-details")
}

// check finds faults before the run instead of after it.
func (o *outputFlags) check() error {
	if _, err := result.ParseLayout(o.layout); err != nil {
		return usage(fmt.Errorf("--layout: %w", err))
	}
	return nil
}

// write prints the result, and saves it where asked to.
func (o *outputFlags) write(cmd *cobra.Command, r *result.Result) error {
	layout, err := result.ParseLayout(o.layout)
	if err != nil {
		return usage(fmt.Errorf("--layout: %w", err))
	}
	if o.file != "" {
		if err := r.AppendJSONL(o.file, o.details); err != nil {
			return err
		}
	}
	w := cmd.OutOrStdout()
	if o.json {
		return r.WriteJSON(w)
	}
	if err := r.WriteBlock(w, layout); err != nil || o.classic {
		return err
	}
	return r.WriteExtra(w)
}
