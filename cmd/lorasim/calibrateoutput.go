package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"lorasim/internal/atomicfile"
)

func writeFile(path string, data []byte) error {
	return atomicfile.Write(path, func(w *atomicfile.File) error { _, err := w.Write(data); return err })
}

// write saves the profile and prints the fit.
func (f *calibrateFlags) write(cmd *cobra.Command, out *fitted) error {
	text, err := out.profile.YAML()
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	if f.output == "" && !f.json {
		out.table(cmd.ErrOrStderr())
		_, err := w.Write(text)
		return err
	}
	if f.output != "" {
		if err := writeFile(f.output, text); err != nil {
			return err
		}
	}
	if f.json {
		return out.writeJSON(w)
	}
	out.table(w)
	return nil
}

// table prints the coefficients and the errors on unseen data.
func (out *fitted) table(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if k := out.kernels; k != nil {
		fmt.Fprintf(tw, "COEFFICIENT\tVALUE\tSTANDARD ERROR\n")
		fmt.Fprintf(tw, "fixed part, ms (not used)\t%.4g\t%.2g\n", k.FixedMs, k.FixedStd)
		fmt.Fprintf(tw, "decode.per_request_ms\t%.4g\t%.2g\n", k.PerRequestMs, k.PerRequestStd)
		fmt.Fprintf(tw, "lora.%s_us\t%.4g\t%.2g\n", k.Backend, k.LoRAUs, k.LoRAStd)
	} else {
		fmt.Fprintln(tw, "COEFFICIENT\tSTART\tVALUE\tSTANDARD ERROR\tNOTE")
		for _, e := range out.fit.Params {
			value, std, note := fmt.Sprintf("%.4g", e.Value), fmt.Sprintf("%.1f %%", 100*e.RelStd), ""
			switch {
			case e.Held:
				value, std, note = "-", "-", "not determined by the data, left as it was"
			case e.AtBound:
				note = "at its bound"
			}
			fmt.Fprintln(tw, strings.TrimRight(fmt.Sprintf("%s\t%.4g\t%s\t%s\t%s", e.Name, e.Start, value, std, note), "\t"))
		}
		fmt.Fprintf(tw, "\ndeviation in units of the noise: %.2f before, %.2f after, %d evaluations\n", out.fit.StartLoss, out.fit.Loss, out.fit.Evaluations)
	}
	if len(out.profile.Validation) > 0 {
		fmt.Fprintln(tw, "\nUNSEEN DATA\tMETRIC\tMEDIAN |ERROR|\tP90")
		for _, v := range out.profile.Validation {
			fmt.Fprintf(tw, "%s\t%s\t%.1f %%\t%.1f %%\n", v.Runs, v.Metric, 100*v.MedianAbsError, 100*v.P90AbsError)
		}
	}
	tw.Flush()
}

func (out *fitted) writeJSON(w io.Writer) error {
	type coefficient struct {
		Name    string   `json:"name"`
		Start   float64  `json:"start"`
		Value   *float64 `json:"value"`          // null: held
		RelStd  *float64 `json:"relative_error"` // null: infinite
		Held    bool     `json:"held"`
		AtBound bool     `json:"at_bound"`
	}
	finite := func(x float64) *float64 {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return nil
		}
		return &x
	}
	type errorOf struct {
		Runs   string  `json:"runs"`
		Metric string  `json:"metric"`
		Median float64 `json:"median_abs_error"`
		P90    float64 `json:"p90_abs_error"`
	}
	object := struct {
		Profile      string        `json:"profile"`
		Coefficients []coefficient `json:"coefficients"`
		StartLoss    *float64      `json:"start_deviation,omitempty"`
		Loss         *float64      `json:"deviation,omitempty"`
		Evaluations  int           `json:"evaluations,omitempty"`
		Unseen       []errorOf     `json:"unseen"`
	}{Profile: out.profile.Name, Coefficients: []coefficient{}, Unseen: []errorOf{}}
	if fit := out.fit; fit != nil {
		object.StartLoss, object.Loss, object.Evaluations = finite(fit.StartLoss), finite(fit.Loss), fit.Evaluations
		for _, e := range fit.Params {
			object.Coefficients = append(object.Coefficients, coefficient{e.Name, e.Start, finite(e.Value), finite(e.RelStd), e.Held, e.AtBound})
		}
	}
	if k := out.kernels; k != nil {
		relative := func(std, x float64) *float64 { return finite(math.Abs(std / x)) }
		object.Coefficients = append(object.Coefficients,
			coefficient{Name: "decode.per_request_ms", Value: finite(k.PerRequestMs), RelStd: relative(k.PerRequestStd, k.PerRequestMs)},
			coefficient{Name: "lora." + k.Backend + "_us", Value: finite(k.LoRAUs), RelStd: relative(k.LoRAStd, k.LoRAUs)})
	}
	for _, v := range out.profile.Validation {
		object.Unseen = append(object.Unseen, errorOf{v.Runs, v.Metric, v.MedianAbsError, v.P90AbsError})
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(object)
}
