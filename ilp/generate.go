package ilp

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Generate draws a random instance of dLoRA's problem: execution times uniform
// from 1 to 7 s in ms, adapter popularity Zipf 0.9 in random order,
// ceil((J+K-1)/J) slots per worker, every adapter placed once round-robin over
// a random order and the remaining slots filled at random, each request on a
// random holder of its adapter, pages log-normal (ln 24, 0.9) from 1 to 512, KV
// pages for an even share times a number from 0.8 to 1.2.
func Generate(workers, adapters, requests int, seed uint64) *Instance {
	rng := rand.New(rand.NewPCG(seed, 0x6d696772617465))
	in := &Instance{Format: Format, Alpha: 0.05, Bandwidth: 4096}
	for range adapters {
		in.Adapters = append(in.Adapters, InstanceAdapter{math.Round(1000*(1+6*rng.Float64())) / 1000})
	}
	slots := (workers + adapters - 1 + workers - 1) / workers
	holders := make([][]int32, adapters)
	for j := range workers {
		in.Workers = append(in.Workers, InstanceWorker{Slots: slots})
		_ = j
	}
	for n, k := range rng.Perm(adapters) {
		j := n % workers
		in.Workers[j].Resident = append(in.Workers[j].Resident, int32(k))
	}
	for j := range in.Workers {
		w := &in.Workers[j]
		for _, k := range rng.Perm(adapters) {
			if len(w.Resident) >= slots {
				break
			}
			if !slices.Contains(w.Resident, int32(k)) {
				w.Resident = append(w.Resident, int32(k))
			}
		}
		slices.Sort(w.Resident)
		for _, k := range w.Resident {
			holders[k] = append(holders[k], int32(j))
		}
	}
	rank := rng.Perm(adapters)
	cum := make([]float64, adapters)
	sum := 0.0
	for i := range cum {
		sum += math.Pow(float64(i+1), -0.9)
		cum[i] = sum
	}
	total := int64(0)
	for range requests {
		i, _ := slices.BinarySearch(cum, rng.Float64()*sum)
		k := rank[min(i, adapters-1)]
		pages := int64(math.Round(math.Exp(math.Log(24) + 0.9*rng.NormFloat64())))
		pages = min(max(pages, 1), 512)
		total += pages
		in.Requests = append(in.Requests, InstanceRequest{Adapter: int32(k), Worker: holders[k][rng.IntN(len(holders[k]))], Pages: pages})
	}
	for j := range in.Workers {
		in.Workers[j].KVPages = int64(float64(total) / float64(workers) * (0.8 + 0.4*rng.Float64()))
	}
	return in
}
