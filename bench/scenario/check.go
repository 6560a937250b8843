package scenario

import (
	"context"
	"errors"
	"fmt"
	"io"

	"lorasim/trace"
)

// First returns the workload of the scenario with its first request alone, for
// Check. An error says that a file is missing, is unreadable or does not begin
// as it should.
func (s *Scenario) First(ctx context.Context) (*trace.Workload, error) {
	in, err := s.OpenWorkload(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	w := &trace.Workload{Adapters: in.Adapters()}
	r, err := in.Next()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("the workload (%s) has no request", in.Dataset)
	}
	if err != nil {
		return nil, err
	}
	w.Requests = []trace.Request{r}
	return w, nil
}

// Check finds what would stop the scenario from running, by running it with the
// one request that First returns.
func (s *Scenario) Check(ctx context.Context, first *trace.Workload) error {
	_, err := s.Simulate(ctx, RunOptions{Input: &Input{Source: first.Source()}})
	return err
}
