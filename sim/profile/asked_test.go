package profile

import (
	"math/rand/v2"
	"testing"

	"lorasim/router"
)

// An answer is the same at the first question and later, whatever was asked before, and that of [Costs].
func TestAskedAgain(t *testing.T) {
	for _, name := range Names() {
		p, err := Load(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		r, c := rand.New(rand.NewPCG(1, 2)), p.Compile()
		pick := func(of ...int) int { return of[r.IntN(len(of))] }
		for range 400 {
			running, adapters := pick(0, 1, 2, 5, 16, maxKeptBatch, maxKeptBatch+1), pick(0, 1, 2, 4, 100)
			rank, kv := pick(-1, 0, 8, 64, maxKeptRank, maxKeptRank+1), int64(pick(0, 1, 5000, 1<<20))
			m, fresh := Model{c}, Model{p.Compile()}
			got, want := m.DecodeStep(running, adapters, kv, rank), fresh.DecodeStep(running, adapters, kv, rank)
			if got != want {
				t.Fatalf("%s: a step of %d, %d adapters, %d tokens, rank %d takes %v, at first %v", name, running,
					adapters, kv, rank, got, want)
			}
			slots := int64(p.Engine.Slots(running))
			loras := int64(running)
			if rank <= 0 || adapters <= 1 && p.Latency.LoRA.Backend == BackendDLoRA {
				loras = 0
			}
			distinct, of := min(loras, int64(adapters), slots), int64(max(rank, 0))
			work := StepWork{Batch: int64(running), KV: kv, LoRAs: loras, MaxRank: rank, Adapters: distinct,
				Tiles: c.tiles(loras, distinct), Squares: loras * loras / max(distinct, 1), Ranks: distinct * of,
				RankTokens: loras * of, RequestRanks: loras * of}
			if got, want := m.DecodeStep(running, adapters, kv, rank), c.Step(&work).Seconds(); got != want {
				t.Fatalf("%s: a step of %+v takes %v, expected %v", name, work, got, want)
			}
			tokens := int64(pick(0, 1, 100, int(c.chunk)-1, int(c.chunk), 3*int(c.chunk)+7, maxKeptPrompt, 1<<20))
			if got, want := m.Prefill(tokens), fresh.Prefill(tokens); got != want {
				t.Fatalf("%s: a prompt of %d tokens takes %v, at first %v", name, tokens, got, want)
			}
			from := router.Tier(r.IntN(int(router.GPU) + 1))
			if got, want := m.AdapterLoad(max(rank, 0), from), c.Load(max(rank, 0), from).Seconds(); got != want {
				t.Fatalf("%s: a load of rank %d from tier %d takes %v, expected %v", name, rank, from, got, want)
			}
		}
	}
}
