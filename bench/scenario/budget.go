package scenario

import (
	"errors"
	"slices"
	"strings"

	"lorasim/trace"
	"lorasim/trace/lengths"
)

// defaultBudget is what chat clients are taken to ask for: a constant at which the
// built-in chats end, whose outputs are 158 tokens on average. Engines reserve
// memory for it; nobody but the engine's clients would know better.
const defaultBudget = "1024"

// budgetLaw is the law of max_new_tokens, "trace" for what a saved workload states;
// keep: where the law's budget is below an output, the output counts. auto is a
// saved workload's own column; what benchmark clients ask for, namely the output,
// where the workload is one of theirs (compat, random and measured lengths); else
// a constant.
func (w *Workload) budgetLaw() (law string, keep bool) {
	if w.MaxNewTokens != "auto" {
		return w.MaxNewTokens, false
	}
	random := w.Lengths == "random" || w.Lengths == "auto" && (w.RandomInputLen > 0 || w.RandomOutputLen > 0)
	switch {
	case w.File != "":
		return budgetOfTrace, false
	case w.Compat != "" || random || strings.HasPrefix(w.Lengths, "measured") || strings.HasPrefix(w.Lengths, "random:") || w.Lengths == NoLengths:
		return "exact", false
	}
	return defaultBudget, true
}

const budgetOfTrace = "trace"

// StatesBudgets says whether max_new_tokens may differ from the outputs, apart from
// what a saved workload states.
func (w *Workload) StatesBudgets() bool {
	law, _ := w.budgetLaw()
	return !slices.Contains([]string{"exact", budgetOfTrace}, law)
}

// fillBudgets gives requests their max_new_tokens.
func (s *Scenario) fillBudgets(src trace.Source) (trace.Source, error) {
	w := &s.Workload
	law, keep := w.budgetLaw()
	if law == budgetOfTrace {
		if w.File == "" {
			return nil, errors.New("max_new_tokens trace: only a saved workload states any; expected " + lengths.BudgetForms)
		}
		return src, nil
	}
	b, err := lengths.ParseBudget(law)
	if err != nil {
		return nil, err
	}
	if law == "exact" && w.File == "" {
		return src, nil // they have none yet, which is the same
	}
	return lengths.WithBudget(src, b, keep, s.Seed), nil
}
