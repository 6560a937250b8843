package scenario

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"lorasim/sim/profile"
)

// MapPaths replaces the name of every file that the scenario reads by f of it.
func (s *Scenario) MapPaths(f func(path string) string) {
	for _, to := range []struct {
		key   string
		value *string
	}{
		{fileKey, &s.Workload.File}, {tracePathKey, &s.Workload.TracePath}, {histogramKey, &s.Workload.TraceHistogram},
		{lengthsKey, &s.Workload.Lengths}, {profileKey, &s.Cluster.Profile}, {policyKey, &s.Routing.Policy},
	} {
		*to.value = mapPaths(to.key, *to.value, f)
	}
}

// MapPaths replaces the names of files within a value of the setting by f of
// them; values of settings that name none stay as they are.
func (f Field) MapPaths(value string, path func(string) string) string {
	return mapPaths(f.Key, value, path)
}

// Keys of settings that name files.
const (
	fileKey      = "workload.file"
	tracePathKey = "workload.trace_path"
	histogramKey = "workload.trace_histogram"
	lengthsKey   = "workload.lengths"
	profileKey   = "cluster.profile"
	policyKey    = "routing.policy"
)

func mapPaths(key, value string, f func(string) string) string {
	switch key {
	case fileKey, tracePathKey:
		if value != "" {
			return f(value)
		}
	case histogramKey:
		if strings.HasSuffix(value, ".json") {
			return f(value)
		}
	case lengthsKey:
		if file, ok := strings.CutPrefix(value, "table:"); ok {
			return "table:" + f(file)
		}
	case profileKey:
		entries, err := parseProfiles(value)
		if err != nil {
			return value // whoever loads them says what is wrong
		}
		names := make([]string, len(entries))
		for i, e := range entries {
			if isProfileFile(e.name, f) {
				e.name = f(e.name)
			}
			names[i] = e.String()
		}
		return strings.Join(names, ",")
	case policyKey:
		name, text, ok := strings.Cut(value, ":")
		if !ok || name != "explicit" {
			return value
		}
		options := strings.Split(text, ",")
		for i, o := range options {
			if file, ok := strings.CutPrefix(o, "file="); ok {
				options[i] = "file=" + f(file)
			}
		}
		return name + ":" + strings.Join(options, ",")
	}
	return value
}

// isProfileFile says whether a profile is a file and not a built-in one, nor a
// name that is neither, which is left for the error message to show.
func isProfileFile(name string, f func(string) string) bool {
	if name == "" || slices.Contains(profile.Names(), name) || strings.HasPrefix(name, profile.AnalyticPrefix) {
		return false
	}
	if strings.ContainsAny(name, `./\`) {
		return true
	}
	_, err := os.Stat(f(name))
	return err == nil
}

// In returns a function for MapPaths that resolves relative paths against a
// folder.
func In(folder string) func(string) string {
	return func(path string) string {
		if path == "" || filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(folder, path)
	}
}

// AbsolutePaths makes the scenario independent of the working directory.
func (s *Scenario) AbsolutePaths() error {
	var failed error
	s.MapPaths(func(path string) string {
		abs, err := filepath.Abs(path)
		if err != nil {
			failed = err
			return path
		}
		return abs
	})
	return failed
}
