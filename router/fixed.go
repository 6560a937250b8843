package router

// Fixed is a policy that routes request i to worker Fixed[i].
type Fixed func(id int64) int

// Route implements Policy.
func (f Fixed) Route(r Request, _ *View) int { return f(r.ID) }
