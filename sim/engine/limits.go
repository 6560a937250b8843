package engine

// Reasons why an engine can never serve a request, as formats with a limit of the engine.
const (
	RankTooLarge   = "its adapter cannot be loaded: rank %d over max_lora_rank %d"
	BudgetTooLarge = "prompt + max_new_tokens over the context length %d"
	PromptTooLarge = "prompt over the context length %d"
	KVTooSmall     = "needs more than the worker's %d KV tokens"
)

// Reasons for which a worker that has too many requests rejects one.
const (
	QueueFull       = "the request queue is full"               // sglang's max_queued_requests
	Outranked       = "aborted by a request of higher priority" // the same, with priorities
	TooManyRequests = "max_num_queued_reqs is reached"          // vLLM's
	TooManyTokens   = "max_num_queued_tokens is reached"        // vLLM's
)

// Overloaded reports whether a reason of a rejection is that the worker has too many requests.
func Overloaded(reason string) bool {
	switch reason {
	case QueueFull, Outranked, TooManyRequests, TooManyTokens:
		return true
	}
	return false
}
