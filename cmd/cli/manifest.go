package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"lorasim/bench/scenario"
	"lorasim/bench/scenario/manifest"
	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/httpapi"
	"lorasim/internal/atomicfile"
	"lorasim/internal/format"
	"lorasim/internal/textfile"
)

// readManifests reads Kubernetes manifests and Helm values.
func readManifests(ctx context.Context, paths []string) (*manifest.Fleet, []manifest.File, error) {
	var files []manifest.File
	for _, path := range paths {
		data, err := textfile.Read(ctx, path, func(r io.Reader, _ string) ([]byte, error) { return io.ReadAll(r) })
		if err != nil {
			return nil, nil, err
		}
		files = append(files, manifest.File{Name: path, Data: data})
	}
	f, err := manifest.Read(files...)
	return f, files, err
}

// areManifests reports whether all arguments of check are files rather than workers.
func areManifests(args []string) bool {
	for _, a := range args {
		if st, err := os.Stat(a); !isScenario(a) && (err != nil || st.IsDir()) {
			return false
		}
	}
	return len(args) > 0
}

// checkManifests prints what manifests describe, and what is wrong with them. It fails if there is a fault.
func checkManifests(cmd *cobra.Command, args []string) error {
	f, _, err := readManifests(cmd.Context(), args)
	if err != nil {
		return usage(err)
	}
	found := f.Check()
	for _, s := range f.Servers {
		note := func(text string) { found = append(found, manifest.Finding{Place: s.Place, Text: text}) }
		switch {
		case s.LoRA && s.Version == "":
			note("the image's tag states no version of " + s.Engine + ": its known faults are unknown")
		case s.LoRA:
			for _, text := range fleet.KnownFaults(infoOf(s)) {
				note(s.Engine + " " + s.Version + ": " + text)
			}
		}
	}
	faults := 0
	for _, x := range found {
		if x.Fault {
			faults++
		}
	}
	if err := show(cmd, func(w io.Writer) error { return writeManifests(w, f, found) },
		inJSON(map[string]any{"schema": "lorasim.manifests/1", "servers": f.Servers, "adapters": f.Adapters,
			"ignored": f.Ignored, "findings": found}, "  ")); err != nil {
		return err
	}
	if faults > 0 {
		return errors.New(format.Count(faults, "fault"))
	}
	return nil
}

func writeManifests(w io.Writer, f *manifest.Fleet, found []manifest.Finding) error {
	rows := [][]string{{"Workers", "Engine", "Model", "Replicas", "Slots", "Rank", "Host", "GPU"}}
	for _, s := range f.Servers {
		row := []string{s.Name, strings.TrimSpace(s.Engine + " " + s.Version), s.Model, fmt.Sprint(s.Replicas),
			"no LoRA",
			"-", "-", "-"}
		if s.LoRA {
			row[4], row[5] = fmt.Sprint(s.Slots), fmt.Sprint(s.MaxRank)
			if s.Host > 0 {
				row[6] = fmt.Sprint(s.Host)
			}
		}
		if s.GPUs > 0 {
			row[7] = strings.TrimSpace(fmt.Sprintf("%d %s", s.GPUs, s.GPU))
		}
		rows = append(rows, row)
	}
	if len(f.Servers) > 0 {
		if err := format.Table(w, rows); err != nil {
			return err
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s", format.Count(len(f.Adapters), "adapter"))
	if len(f.Ignored) > 0 {
		fmt.Fprintf(&b, "; ignored: %s", strings.Join(f.Ignored, ", "))
	}
	b.WriteByte('\n')
	for _, x := range found {
		fmt.Fprintln(&b, x)
	}
	if len(found) == 0 {
		b.WriteString("no faults found\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// applyManifests sets what manifests state: FILE,FILE,... with #NAME for one of several groups of workers. Given flags
// override it, and a missing profile is an error unless it is given.
func (sf *scenarioFlags) applyManifests(cmd *cobra.Command, sc *scenario.Scenario) error {
	text, name, _ := strings.Cut(sf.manifests, "#")
	f, _, err := readManifests(cmd.Context(), strings.Split(text, ","))
	if err != nil {
		return usage(fmt.Errorf("--cluster: %w", err))
	}
	settings, err := f.Settings(name)
	if err != nil && (!errors.Is(err, manifest.ErrNoProfile) || !cmd.Flags().Changed("profile")) {
		return usage(fmt.Errorf("--cluster: %w", err))
	}
	parts := make([]string, len(settings))
	for i, s := range settings {
		if err := sc.Set(s.Key, s.Value); err != nil {
			return usage(fmt.Errorf("--cluster: %s: %w", s.Place, err))
		}
		parts[i] = s.Key + "=" + format.Clip(s.Value, 60)
	}
	say(cmd, "%s: %s", sf.manifests, strings.Join(parts, " "))
	if len(f.Ignored) > 0 {
		say(cmd, "%s: ignored: %s", text, strings.Join(f.Ignored, ", "))
	}
	return nil
}

// wantOf is what manifests are to state of an answer; "" is an unknown policy.
func wantOf(workers, slots, host int, policy string) manifest.Want {
	want := manifest.Want{Workers: workers, Slots: slots, Host: host}
	switch kind, _, _ := strings.Cut(policy, ":"); {
	case workers == 1 || kind == "":
	case kind == "static":
		want.Copies = manifest.OneWorker
	default:
		want.Copies = manifest.AllWorkers
	}
	return want
}

// checkPatch returns an error if the manifests of --cluster cannot state what may be wanted.
func (sf *scenarioFlags) checkPatch(ctx context.Context, wants ...manifest.Want) error {
	text, name, _ := strings.Cut(sf.manifests, "#")
	f, files, err := readManifests(ctx, strings.Split(text, ","))
	for i := 0; i < len(wants) && err == nil; i++ {
		_, err = f.Patch(files, name, wants[i])
	}
	if err != nil {
		return fmt.Errorf("--patch: %w", err)
	}
	return nil
}

// patchManifest writes the manifests of --cluster that differ with an answer, one after the other.
func (sf *scenarioFlags) patchManifest(cmd *cobra.Command, want manifest.Want, policy, to string) error {
	text, name, _ := strings.Cut(sf.manifests, "#")
	f, files, err := readManifests(cmd.Context(), strings.Split(text, ","))
	if err != nil {
		return err
	}
	changed, err := f.Patch(files, name, want)
	if err != nil {
		return fmt.Errorf("--patch: %w", err)
	}
	if policy != "" && !statesPolicy(files, changed, name, policy) {
		say(cmd, "note: the manifests cannot state the policy: start lorasim gateway with --policy %s", policy)
	}
	if len(changed) == 0 {
		say(cmd, "note: %s is not written: nothing in the manifests changes", to)
		return nil
	}
	var out []byte
	names := make([]string, len(changed))
	for i, file := range changed {
		if names[i] = file.Name; i > 0 {
			out = append(bytes.TrimRight(out, "\n"), "\n---\n"...)
		}
		out = append(out, file.Data...)
	}
	say(cmd, "%s: %s with %s", to, strings.Join(names, ", "), format.Count(want.Workers, "worker"))
	return atomicfile.Write(to, func(w *atomicfile.File) error { _, err := w.Write(out); return err })
}

// statesPolicy reports whether manifests, with some changed, say that requests follow a policy.
func statesPolicy(files, changed []manifest.File, name, policy string) bool {
	now := slices.Clone(files)
	for _, c := range changed {
		now[slices.IndexFunc(now, func(f manifest.File) bool { return f.Name == c.Name })] = c
	}
	f, err := manifest.Read(now...)
	if err != nil {
		return false
	}
	list, _ := f.Settings(name)
	return slices.ContainsFunc(list, func(s manifest.Setting) bool { return s.Key == "policy" && s.Value == policy })
}

// infoOf is what check would find out from a worker of a manifest.
func infoOf(s *manifest.Server) *fleet.Info {
	on := map[bool]fleet.Switch{true: fleet.On, false: fleet.Off}
	in := &fleet.Info{API: httpapi.Kind(s.Engine), Version: s.Version, Model: s.Model, LoRA: on[s.LoRA],
		RunTime: on[s.LoRA && s.RunTime]}
	if len(s.Served) > 0 {
		in.Model = s.Served[0]
	}
	return in
}
