package builtin

import "lorasim/router"

// options are specs with options away from their defaults, that work for any number of workers and at least one
// adapter. Policies that need an option are here only.
var options = []string{
	"explicit:map=rest@all", "explicit:map=0@0,rest@all,base@0",
	"bounded-hash:c=1", "least-loaded:ties=first", "least-tokens:ties=first", "weighted-queue:weight=2,ties=first",
	"affinity:variant=residency,ties=first", "affinity:lora=2,queue=0.5,kv=0",
	"affinity:variant=distinct,holders=true", "affinity:variant=active", "affinity:variant=load-state,ties=first",
	"route-to-holder:ties=first", "affinity-spill:threshold=1,ties=first",
	"cache-aware:index=reported,cold=smallest-tree,lora=true,abs=0,capacity=500",
	"prefix-scorer:index=reported,lora=1,ties=first,capacity=640",
	"epp:file=testdata/kserve-lora.yaml", "epp:file=testdata/kserve-lora.yaml,dialect=llm-d,metrics=sglang,refresh=2s",
	"kv-router:index=sent,block=1,ties=first", "prefix-hash:tokens=10,c=1",
	"k-shard:high=0.1,low=0.05,grow-every=0,shrink-every=0", "any-worker:ties=first",
	"rank-aware:slo=20,avg-output=100", "rank-aware:slo=none",
	"plan-and-route:spill=0,horizon=30", "plan-and-route:move=running,place=off", "route-only:spill=0",
	"script:file=../../scenarios/policies/least-loaded.star",
}

// specs are specs of every policy, by its defaults and with the options above.
func specs() (list []string) {
	for _, d := range router.List() {
		if router.CheckSpec(d.Name) == nil {
			list = append(list, d.Name)
		}
	}
	return append(list, options...)
}
