package sim

// pages is the KV cache of a worker, counted in pages of size tokens. A request
// holds whole pages. Requests of the running batch are known only by how many
// of them sit at which place within a page, so that a run of decode steps
// costs no time per request.
type pages struct {
	size     int64
	capacity int64 // pages
	used     int64 // pages
	tokens   int64 // tokens stored

	// at[(n-steps) mod size] counts the running requests with n tokens, where
	// steps are the worker's decode steps so far: a request keeps its place
	// while it decodes.
	at []int64
}

func (p *pages) init(tokens, size int64) {
	*p = pages{size: size, capacity: tokens / size, at: make([]int64, size)}
}

// freeTokens is the room left, in tokens.
func (p *pages) freeTokens() int64 { return (p.capacity - p.used) * p.size }

func (p *pages) pagesOf(tokens int64) int64 {
	if p.size == 1 {
		return tokens // the usual size; a division less
	}
	return (tokens + p.size - 1) / p.size
}

// pagesFor is the number of pages that a request of n tokens takes to grow by d.
func (p *pages) pagesFor(n, d int64) int64 { return p.pagesOf(n+d) - p.pagesOf(n) }

// grow lengthens one request from n tokens by d.
func (p *pages) grow(n, d int64) {
	p.used += p.pagesFor(n, d)
	p.tokens += d
}

// release frees a request of n tokens.
func (p *pages) release(n int64) {
	p.used -= p.pagesOf(n)
	p.tokens -= n
}

func (p *pages) place(n, steps int64) int64 {
	if p.size == 1 {
		return 0
	}
	m := (n - steps) % p.size
	if m < 0 {
		m += p.size
	}
	return m
}

// join counts a request of n tokens into the running batch, leave takes it out.
func (p *pages) join(n, steps int64)  { p.at[p.place(n, steps)]++ }
func (p *pages) leave(n, steps int64) { p.at[p.place(n, steps)]-- }

// stepNeed is the number of pages that the next decode step takes: one for
// each running request whose pages are full.
func (p *pages) stepNeed(steps int64) int64 { return p.at[p.place(0, steps)] }

// stepsThatFit is the largest number of decode steps, at most limit, that the
// free pages allow for a batch of the given size.
func (p *pages) stepsThatFit(steps, batch, limit int64) int64 {
	if batch == 0 {
		return limit
	}
	free := p.capacity - p.used
	k := free / batch * p.size // in size steps every request takes one page
	if k >= limit {
		return limit
	}
	free %= batch
	for k < limit {
		free -= p.stepNeed(steps + k)
		if free < 0 {
			break
		}
		k++
	}
	return k
}

// decode makes every running request longer by k tokens.
func (p *pages) decode(steps, batch, k int64) {
	p.used += k / p.size * batch
	for i := k - k%p.size; i < k; i++ {
		p.used += p.stepNeed(steps + i)
	}
	p.tokens += k * batch
}
