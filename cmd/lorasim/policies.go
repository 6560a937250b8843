package main

import (
	"encoding/json"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"lorasim/router"
)

func newPolicies() *cobra.Command {
	var asJSON, long bool
	cmd := &cobra.Command{
		Use:     "policies",
		Short:   "List the routing policies",
		Example: "  lorasim policies\n  lorasim policies --options\n  lorasim sim --policy bounded-hash:c=1.25",
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := cmd.OutOrStdout()
			if asJSON {
				type option struct{ Name, Default, Doc string }
				type policy struct {
					Name    string   `json:"name"`
					Summary string   `json:"summary"`
					Options []option `json:"options,omitempty"`
				}
				var ps []policy
				for _, d := range router.List() {
					p := policy{Name: d.Name, Summary: d.Summary}
					for _, o := range d.Options {
						p.Options = append(p.Options, option{o.Name, o.Default, o.Doc})
					}
					ps = append(ps, p)
				}
				enc := json.NewEncoder(w)
				enc.SetIndent("", "  ")
				return enc.Encode(ps)
			}
			tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
			for _, d := range router.List() {
				fmt.Fprintf(tw, "%s\t%s\n", d.Name, d.Summary)
				if long {
					for _, o := range d.Options {
						def := ""
						if o.Default != "" {
							def = "=" + o.Default
						}
						fmt.Fprintf(tw, "  :%s%s\t  %s\n", o.Name, def, o.Doc)
					}
				}
			}
			return tw.Flush()
		},
	}
	cmd.Flags().BoolVar(&long, "options", false, "with each policy's options and their defaults")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}
