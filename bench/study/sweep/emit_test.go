package sweep

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

func emit(t *testing.T, j Job, system string) string {
	t.Helper()
	var b strings.Builder
	if err := j.Emit(&b, system); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// indexedJob is the part of Kubernetes' batch/v1 Job that the manifest uses, by
// the names and types of its API reference; strict decoding refuses others.
type indexedJob struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct{ Name string }
	Spec       struct {
		CompletionMode string `yaml:"completionMode"`
		Completions    int32
		Parallelism    int32
		BackoffLimit   int32 `yaml:"backoffLimit"`
		Template       struct {
			Spec struct {
				RestartPolicy string `yaml:"restartPolicy"`
				Containers    []struct {
					Name, Image string
					Command     []string
					Args        []string
					Resources   struct {
						Requests, Limits map[string]string
					}
					VolumeMounts []struct {
						Name      string
						MountPath string `yaml:"mountPath"`
					} `yaml:"volumeMounts"`
				}
				Volumes []struct {
					Name                  string
					PersistentVolumeClaim struct {
						ClaimName string `yaml:"claimName"`
					} `yaml:"persistentVolumeClaim"`
				}
			}
		}
	}
}

func TestEmitKubernetes(t *testing.T) {
	for _, memory := range []string{"", "2Gi"} {
		text := emit(t,
			Job{Dir: `/sweeps/a "b"`, Shards: 5, Jobs: 2, Name: "Skew Study", Memory: memory,
				Image: "registry.local/lorasim:1"}, "kubernetes")
		var j indexedJob
		if err := yaml.UnmarshalWithOptions([]byte(text), &j, yaml.Strict()); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		pod := j.Spec.Template.Spec
		c := pod.Containers[0]
		switch {
		case j.APIVersion != "batch/v1", j.Kind != "Job", j.Metadata.Name != "skew-study",
			j.Spec.CompletionMode != "Indexed",
			j.Spec.Completions != 5, j.Spec.Parallelism != 5,
			pod.RestartPolicy != "OnFailure" && pod.RestartPolicy != "Never",
			c.Image != "registry.local/lorasim:1", strings.Join(c.Command, " ") != "lorasim",
			strings.Join(c.Args, "|") != `sweep|run|/sweeps/a "b"|--shard|auto/5|--jobs|2`,
			c.VolumeMounts[0].Name != pod.Volumes[0].Name, c.VolumeMounts[0].MountPath != "/sweeps",
			pod.Volumes[0].PersistentVolumeClaim.ClaimName != "sweeps", c.Resources.Limits["memory"] != memory,
			c.Resources.Requests["cpu"] != "2":
			t.Errorf("%+v\n%s", j, text)
		}
	}
}

func TestEmitErrors(t *testing.T) {
	for want, c := range map[string]struct {
		j      Job
		system string
	}{
		`did you mean "slurm"`:     {Job{Dir: "out", Shards: 1}, "slrum"},
		"shards is 0":              {Job{Dir: "out"}, "slurm"},
		"time ":                    {Job{Dir: "out", Shards: 1, Time: "1h; rm"}, "slurm"},
		"needs the absolute path":  {Job{Dir: "out", Shards: 1}, "kubernetes"},
		"claim ":                   {Job{Dir: "/out", Shards: 1, Claim: "A b"}, "kubernetes"},
		"image ":                   {Job{Dir: "/out", Shards: 1, Image: `a" b`}, "kubernetes"},
		"a path with a line break": {Job{Dir: "/out\nrm", Shards: 1}, "parallel"},
		"up to 63 letters":         {Job{Dir: "/out", Shards: 1, Name: "???"}, "slurm"},
		"partition ":               {Job{Dir: "/out", Shards: 1, Queue: "a b"}, "slurm"},
		"memory ":                  {Job{Dir: "/out", Shards: 1, Memory: "2 G"}, "slurm"},
	} {
		if err := c.j.Emit(&strings.Builder{}, c.system); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// The scripts name program and folder rightly however they are spelt: run with
// a program that prints its arguments.
func TestEmitScripts(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "it's lorasim")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nprintf '<%s>' \"$@\"; echo\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	j := Job{Dir: "a folder's $name", Program: program, Shards: 2}
	run := func(shell, text string) string {
		cmd := exec.Command(shell)
		cmd.Stdin = strings.NewReader(text)
		cmd.Env = append(os.Environ(), "SLURM_ARRAY_TASK_ID=1", "PARALLEL_HOME="+dir, "HOME="+dir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s\n%s", err, out, text)
		}
		return string(out)
	}
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("no bash")
	}
	slurm := emit(t, j, "slurm")
	if got, want := run("bash", slurm), "<sweep><run><a folder's $name><--shard><1/2><--jobs><1>\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if !strings.HasPrefix(slurm, "#!/bin/bash\n") || !strings.Contains(slurm, "\n#SBATCH --array=0-1\n") {
		t.Error(slurm)
	}
	if _, err := exec.LookPath("parallel"); err != nil {
		t.Skip("GNU parallel is not installed")
	}
	got := run("sh", emit(t, j, "parallel"))
	for _, want := range []string{
		"<sweep><run><a folder's $name><--shard><0/2><--jobs><1>\n", "<--shard><1/2>",
		"<sweep><merge><a folder's $name>\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
