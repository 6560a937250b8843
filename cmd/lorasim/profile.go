package main

import (
	"encoding/json"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"lorasim/sim/profile"
)

func newProfile() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "profile",
		Short: "List, show, compute and compare worker profiles",
		Example: "  lorasim profile list\n  lorasim profile show llama2-7b-24gb > mine.yaml\n" +
			"  lorasim profile compare analytic:llama-2-7b,rtx-4090 llama2-7b-24gb",
	}
	cmd.AddCommand(newProfileList(), newProfileAnalytic(), newProfileCompare(), &cobra.Command{
		Use:   "show NAME|FILE",
		Short: "Print a profile with all its settings, as a file to change and use",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := profile.Load(args[0])
			if err != nil {
				return err
			}
			text, err := p.YAML()
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	})
	return cmd
}

func newProfileList() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the embedded profiles",
		RunE: func(cmd *cobra.Command, _ []string) error {
			type row struct {
				Name, Model, GPU string
				KVTokens         int64
				Calibrated       bool
			}
			var rows []row
			for _, name := range profile.Names() {
				p, err := profile.Load(name)
				if err != nil {
					return err
				}
				kv, err := p.KVTokens()
				if err != nil {
					return err
				}
				rows = append(rows, row{name, p.Model, p.GPU, kv, !p.Uncalibrated})
			}
			w := cmd.OutOrStdout()
			if asJSON {
				return json.NewEncoder(w).Encode(rows)
			}
			tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
			fmt.Fprintln(tw, "NAME\tMODEL\tGPU\tKV TOKENS\tCALIBRATED")
			for _, r := range rows {
				yes := "yes"
				if !r.Calibrated {
					yes = "no"
				}
				fmt.Fprintf(tw, "%s\t%s\t%s\t%d\t%s\n", r.Name, r.Model, r.GPU, r.KVTokens, yes)
			}
			return tw.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}
