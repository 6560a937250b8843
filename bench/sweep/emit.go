package sweep

import (
	"cmp"
	"fmt"
	"io"
	"path"
	"regexp"
	"strconv"
	"strings"
	"text/template"

	"lorasim/internal/suggest"
)

// Job says how the shards of a sweep are to run.
type Job struct {
	Name    string // of the job; "": from the sweep's
	Dir     string // folder of the sweep, as the workers of the batch system see it
	Program string // how lorasim is called there; "": lorasim
	Shards  int
	Jobs    int    // cells at a time in one shard; 0: 1
	Time    string // Slurm: limit for one shard, as in 1:00:00
	Memory  string // limit for one shard, as in 2G or 2Gi
	Queue   string // Slurm: partition

	Image string // Kubernetes: image that has lorasim
	Claim string // Kubernetes: persistent volume claim that is mounted at Mount
	Mount string
}

// The templates of the job files. Merging is a step of its own after the shards.
const slurmText = `#!/bin/bash
# {{.Shards}} shards of the sweep in {{.Dir}}. From the folder to run in:
#   id=$(sbatch --parsable THIS_FILE)
#   sbatch --dependency=afterok:$id --wrap {{sh .MergeCommand}}
# A shard that was stopped goes on where it stopped when it is submitted again.
#SBATCH --job-name={{.Name}}
#SBATCH --array=0-{{.Last}}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task={{.Jobs}}
{{- if .Time}}
#SBATCH --time={{.Time}}{{end}}
{{- if .Memory}}
#SBATCH --mem={{.Memory}}{{end}}
{{- if .Queue}}
#SBATCH --partition={{.Queue}}{{end}}
set -eu
exec {{sh .Program}} sweep run {{sh .Dir}} --shard "$SLURM_ARRAY_TASK_ID/{{.Shards}}" --jobs {{.Jobs}}
`

const parallelText = `#!/bin/sh
# {{.Shards}} shards of the sweep in {{.Dir}}, as many at a time as there are cores
# (parallel --jobs); on several machines: parallel --sshlogin HOST,... with the
# folder shared between them.
set -eu
seq 0 {{.Last}} | parallel --halt soon,fail=1 {{sh (sh .Program)}} sweep run {{sh (sh .Dir)}} --shard {}/{{.Shards}} --jobs {{.Jobs}}
{{sh .Program}} sweep merge {{sh .Dir}}
`

const kubernetesText = `# {{.Shards}} shards of the sweep in {{.Dir}}, which lies on the volume of the claim
# {{.Claim}}. When the job is complete, merge:
#   {{.MergeCommand}}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{yaml .Name}}
spec:
  completionMode: Indexed
  completions: {{.Shards}}
  parallelism: {{.Shards}}
  backoffLimit: 6
  template:
    spec:
      restartPolicy: OnFailure
      containers:
        - name: sweep
          image: {{yaml .Image}}
          command: [{{yaml .Program}}]
          args: [sweep, run, {{yaml .Dir}}, --shard, auto/{{.Shards}}, --jobs, "{{.Jobs}}"]
          resources:
            requests:
              cpu: "{{.Jobs}}"
            {{- if .Memory}}
              memory: {{yaml .Memory}}
            limits:
              memory: {{yaml .Memory}}{{end}}
          volumeMounts:
            - name: sweep
              mountPath: {{yaml .Mount}}
      volumes:
        - name: sweep
          persistentVolumeClaim:
            claimName: {{yaml .Claim}}
`

// Emit writes a job file that runs the shards of a sweep, for slurm, kubernetes
// or parallel.
func (j Job) Emit(w io.Writer, system string) error {
	text, ok := map[string]string{"slurm": slurmText, "kubernetes": kubernetesText, "parallel": parallelText}[system]
	if !ok {
		return suggest.Unknown("batch system", system, []string{"slurm", "kubernetes", "parallel"})
	}
	if err := j.complete(system); err != nil {
		return err
	}
	t := template.Must(template.New(system).Funcs(template.FuncMap{"sh": shellQuote, "yaml": strconv.Quote}).Parse(text))
	return t.Execute(w, struct {
		Job
		Last         int
		MergeCommand string
	}{j, j.Shards - 1, shellQuote(j.Program) + " sweep merge " + shellQuote(j.Dir)})
}

var (
	notLabel = regexp.MustCompile(`[^-a-z0-9]`)
	dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	// what may stand in a line of #SBATCH, where nothing can be quoted
	plainWord  = regexp.MustCompile(`^[-A-Za-z0-9_.:,+]*$`)
	shellPlain = regexp.MustCompile(`^[-A-Za-z0-9_./:=,+@%]+$`)
)

// complete fills in what the job leaves open and checks it.
func (j *Job) complete(system string) error {
	j.Program, j.Image, j.Claim = cmp.Or(j.Program, "lorasim"), cmp.Or(j.Image, "lorasim:latest"), cmp.Or(j.Claim, "sweeps")
	j.Mount = cmp.Or(j.Mount, path.Dir(j.Dir))
	j.Name = strings.Trim(notLabel.ReplaceAllString(strings.ToLower(cmp.Or(j.Name, "sweep")), "-"), "-")
	j.Jobs = max(j.Jobs, 1)
	kubernetes := system == "kubernetes"
	switch {
	case j.Shards < 1:
		return fmt.Errorf("shards is %d, expected >= 1", j.Shards)
	case !dnsLabel.MatchString(j.Name):
		return fmt.Errorf("job name %q: expected up to 63 letters, digits and hyphens", j.Name)
	case strings.ContainsAny(j.Dir+j.Program, "\n\r"):
		return fmt.Errorf("folder %q: a job file cannot name a path with a line break", j.Dir)
	case kubernetes && !dnsLabel.MatchString(j.Claim):
		return fmt.Errorf("claim %q: expected lower-case letters, digits and hyphens", j.Claim)
	case kubernetes && !path.IsAbs(j.Dir):
		return fmt.Errorf("folder %q: Kubernetes needs the absolute path that the sweep has on the volume", j.Dir)
	case kubernetes && strings.ContainsAny(j.Image, " \n\""):
		return fmt.Errorf("image %q: expected NAME[:TAG]", j.Image)
	}
	for _, f := range []struct{ name, v string }{{"time", j.Time}, {"memory", j.Memory}, {"partition", j.Queue}} {
		if !plainWord.MatchString(f.v) {
			return fmt.Errorf("%s %q: expected letters, digits and -_.:,+", f.name, f.v)
		}
	}
	return nil
}

// shellQuote makes one word of the shell out of s.
func shellQuote(s string) string {
	if shellPlain.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
