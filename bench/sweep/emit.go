package sweep

import (
	"cmp"
	"embed"
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

// jobFiles are the templates of the job files. Merging is a step of its own after
// the shards.
//
//go:embed jobs
var jobFiles embed.FS

// Emit writes a job file that runs the shards of a sweep, for slurm, kubernetes
// or parallel.
func (j Job) Emit(w io.Writer, system string) error {
	if err := suggest.Among("batch system", system, []string{"slurm", "kubernetes", "parallel"}); err != nil {
		return err
	}
	if err := j.complete(system); err != nil {
		return err
	}
	t, err := template.New(system).Funcs(template.FuncMap{"sh": shellQuote, "yaml": strconv.Quote}).ParseFS(jobFiles, "jobs/"+system)
	if err != nil {
		return err
	}
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
