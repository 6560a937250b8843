package engine

// Reasons why an engine can never serve a request, as formats with a limit of the engine.
const (
	RankTooLarge   = "its adapter cannot be loaded: rank %d over max_lora_rank %d"
	BudgetTooLarge = "prompt + max_new_tokens over the context length %d"
	PromptTooLarge = "prompt over the context length %d"
	KVTooSmall     = "needs more than the worker's %d KV tokens"
)
