// Package sweep runs a scenario many times, over a grid of settings, policies
// and seeds, and sums up what came out, with confidence intervals.
//
//	spec, err := sweep.LoadSpec("migration-interval.yaml")
//	m, err := spec.Plan(ctx)
//	dir, err := sweep.Create("out", m)             // out/manifest.json
//	sum, err := dir.Run(ctx, sweep.RunOptions{})   // out/cells/*.parquet
//	tables, err := dir.Merge(sweep.MergeOptions{}) // out/{cells,table}.{csv,jsonl,parquet}
//
// One run of the grid is a cell. Cells with the same seed see the same requests
// at the same times whatever the policy (common random numbers), so that
// differences between policies are compared seed by seed, which needs far fewer
// seeds than comparing means.
//
// A sweep lives in a folder. Its manifest lists every cell, and grows where
// policies, seeds or values are added; each cell becomes one file, named by the
// hash of what it depends on, written whole or not at all; so a sweep that was
// stopped in any way goes on where it stopped, and its parts may run on many
// machines that share the folder (see Shard and Emit). What is in the files
// depends only on the manifest: neither on the machine nor on the order.
package sweep
