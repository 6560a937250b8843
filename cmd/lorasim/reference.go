package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"lorasim/bench/scenario"
	"lorasim/bench/sweep"
)

func newReference() *cobra.Command {
	var schema bool
	cmd := &cobra.Command{
		Use:   "reference",
		Short: "Print every key of scenario files, as Markdown or as a JSON Schema",
		Long: `Reference prints what docs/reference.md and docs/scenario.schema.json hold: every
key of scenario files with its values, default, flag and what it means; as a JSON
Schema for editors that check and complete YAML.`,
		Example: "  lorasim reference > reference.md\n  lorasim reference --schema > scenario.schema.json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if schema {
				return writeJSON(cmd, sweep.Schema(), "  ")
			}
			if _, err := fmt.Fprint(cmd.OutOrStdout(), referenceHead); err != nil {
				return err
			}
			return scenario.WriteReference(cmd.OutOrStdout())
		},
	}
	flags(cmd, "", opt(&schema, "schema", false, "print the JSON Schema of scenario and sweep files"))
	return cmd
}

const referenceHead = `# Keys of scenario files

Written by ` + "`lorasim reference`" + `; a test fails where it differs. A scenario is a YAML file
with these keys, all of them optional, or flags of the same names, which win over the file:

` + "```yaml" + `
# yaml-language-server: $schema=scenario.schema.json
seed: 7
workload: {request_rate: 20, num_adapters: 64}
cluster: {num_workers: 8, max_loras_per_batch: 8}
routing: {policy: affinity-spill}
` + "```" + `

Editors with a YAML language server complete and check such files, and those of sweeps, by
[scenario.schema.json](scenario.schema.json). ` + "`lorasim sim --print-config`" + ` prints the whole of a
scenario, ` + "`lorasim policies --options`" + ` the policies with their options, ` + "`lorasim profile list`" + ` the profiles.
`

// newMan is hidden: it is for those who package the program.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write a manual page of every command into a folder",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true
			// a page has the date of $SOURCE_DATE_EPOCH, else that of the day
			head := &doc.GenManHeader{Section: "1", Source: "lorasim", Manual: "lorasim"}
			if err := doc.GenManTree(root, head, args[0]); err != nil {
				return fmt.Errorf("manual pages: %w", err)
			}
			return nil
		},
	}
}
