package live

import (
	"fmt"
	"path/filepath"

	"lorasim/bench/scenario"
	"lorasim/bench/serving/fleet"
	"lorasim/router/push"
	"lorasim/trace"
)

// pushes returns the new versions of adapters of a run; nil: there are none. It sets how the fleet brings them to the
// workers.
func pushes(sc *scenario.Scenario, adapters []trace.Adapter, o *Options) (*Push, error) {
	p, err := sc.Pushes(adapters)
	if p == nil || err != nil {
		return nil, err
	}
	o.Workers.Push = &fleet.Push{Options: p.Options, MaxStaleness: p.MaxStaleness}
	paths := map[int32][]string{}
	for _, a := range p.Adapters {
		if o.PushDir == "" {
			paths[a] = []string{o.Workers.Path(adapters[a])}
		} else if paths[a], err = versionsIn(filepath.Join(o.PushDir, adapters[a].Name)); err != nil {
			return nil, err
		}
	}
	return &Push{push.Schedule{Interval: p.Interval, Adapters: p.Adapters}, func(a int32, version int) string {
		return paths[a][(version-2)%len(paths[a])]
	}}, nil
}

// versionsIn returns the paths of the versions of an adapter: the subfolders of a folder, in the order of their names.
func versionsIn(folder string) (paths []string, err error) {
	list, err := fleet.FindLoRAs(folder)
	if err != nil {
		return nil, fmt.Errorf("--push-dir: %w", err)
	}
	for _, a := range list {
		paths = append(paths, a.Path)
	}
	return paths, nil
}
