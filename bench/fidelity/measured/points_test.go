package measured

import (
	"strings"
	"testing"

	"lorasim/internal/testutil"
)

const pointsHeader = "id,silicon_data_source,backend,backend_version,model_path,system,precision,isl,osl,gemm_quant_mode," +
	"batch_size,tp_size,pp_size,attention_dp_size,silicon_ttft_ms,silicon_tpot_ms\n"

// point is a row of a table with a change of one text.
func point(old, new string) string {
	row := "a,source_file=x.csv; silicon_concurrency=8,vllm,0.12.0,meta-llama/Llama-3.1-8B-Instruct,h100_sxm,fp8,1000," +
		"100,fp8,8,2,1,,50,6.5\n"
	return pointsHeader + strings.Replace(row, old, new, 1)
}

func TestReadPoints(t *testing.T) {
	points, err := ReadPoints(strings.NewReader(point("", "")), "p.csv")
	if err != nil || len(points) != 1 {
		t.Fatalf("%+v, %v", points, err)
	}
	p := points[0]
	if p.Engine != "vllm" || p.Version != "0.12.0" || p.Model != "Llama-3.1-8B-Instruct" || p.GPU != "h100_sxm" ||
		p.GPUs != 2 || p.Bits != 8 || p.Input != 1000 || p.Output != 100 || p.Concurrency != 8 || p.ratio != 1 ||
		p.unknown != "" || p.seen[TPOT] != 6.5 || p.seen[TTFTMean] != 50 {
		t.Errorf("%+v", p)
	}
	if got, want := p.Group(), "Llama-3.1-8B-Instruct 8 bit, h100, vllm"; got != want {
		t.Errorf("group %q, expected %q", got, want)
	}
	for _, c := range []struct {
		old, new string
		has      func(*Point) bool
	}{
		{"x.csv; silicon_concurrency=8", "2026-04-06.csv", func(p *Point) bool {
			return p.ratio == 0.8 && p.Concurrency == 8
		}},
		{"fp8,8,2", "fp8_block,8,2", func(p *Point) bool { return p.Bits == 8 }},
		{"fp8,8,2", ",8,2", func(p *Point) bool { return p.Bits == 16 }},
		{"fp8,8,2", "nvfp4,8,2", func(p *Point) bool { return p.Bits == 4 }},
		{"x.csv", "x.csv; gtl_job_id=1", func(p *Point) bool {
			return strings.Contains(p.unknown, "in flight is unknown")
		}},
		{"concurrency=8", "concurrency=16", func(p *Point) bool {
			return p.Concurrency == 16 && strings.Contains(p.unknown, "several servers")
		}},
		{"2,1,,", "2,2,,", func(p *Point) bool { return p.unknown == "pipeline parallelism" }},
		{"2,1,,", "2,1,4,", func(p *Point) bool { return p.unknown == "data-parallel attention" }},
	} {
		points, err := ReadPoints(strings.NewReader(point(c.old, c.new)), "p.csv")
		if err != nil || !c.has(&points[0]) {
			t.Errorf("%s instead of %s: %+v, %v", c.new, c.old, points, err)
		}
	}
	for _, c := range []struct{ old, new, want string }{
		{"fp8,8,2", "fp6,8,2", `p.csv:2: gemm_quant_mode: "fp6", expected bf16, fp8`},
		{"concurrency=8", "concurrency=0", "p.csv:2: silicon_data_source: silicon_concurrency=0, expected 1 to 100000"},
		{"50,6.5", "50,0", "p.csv:2: silicon_tpot_ms"},
		{",1000,", ",0,", "p.csv:2: isl"},
		{"2,1,,", "0,1,,", "p.csv:2: tp_size"},
	} {
		_, err := ReadPoints(strings.NewReader(point(c.old, c.new)), "p.csv")
		testutil.ExpectError(t, err, c.want)
	}
	_, err = ReadPoints(strings.NewReader("id,isl\n1,2\n"), "p.csv")
	testutil.ExpectError(t, err, `no column "silicon_data_source"`)
}

func TestProfileOfAPoint(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"Llama-3.1-8B-Instruct", "Kimi-K2", "unknown model Kimi-K2"},
		{"h100_sxm", "h300_sxm", "unknown GPU h300"},
		{"vllm,0.12", "tgi,0.12", `unknown engine "tgi"`},
		{"fp8,8,2", "fp8,8,3", "tp is 3"},
		{"=8,vllm", "=1,vllm", "several servers"},
		{"fp8,8,2", "fp8,90000,2", "several servers"},
		// 8000 requests of 1100 tokens, above the 1 million that two cards hold
		{"silicon_concurrency=8,vllm,0.12.0,meta-llama/Llama-3.1-8B-Instruct,h100_sxm,fp8,1000,100,fp8,8,",
			"silicon_concurrency=8000,vllm,0.12.0,meta-llama/Llama-3.1-8B-Instruct,h100_sxm,fp8,1000,100,fp8,8000,",
			"more requests in flight than the KV cache holds"},
		// 8800 tokens of 14 billion operations in 0.02 s are 6 PFLOP/s; two cards reach 2.3
		{"50,6.5", "10,0.1", "faster than the GPU"},
	} {
		points, err := ReadPoints(strings.NewReader(point(c.old, c.new)), "p.csv")
		if err != nil {
			t.Fatal(err)
		}
		if p, why := points[0].profile(); p != nil || !strings.Contains(why, c.want) {
			t.Errorf("%s instead of %s: %q, expected %q", c.new, c.old, why, c.want)
		}
	}
	versions := map[string]bool{"": false, "0.9.1": false, "0.12.0": false, "0.14.0": true, "0.33": true}
	for version, async := range versions {
		points, err := ReadPoints(strings.NewReader(point("0.12.0", version)), "p.csv")
		if err != nil {
			t.Fatal(err)
		}
		if p, why := points[0].profile(); why != "" || p.Engine.AsyncScheduling != async {
			t.Errorf("vLLM %s: %q, %+v, expected asynchronous scheduling: %v", version, why, p, async)
		}
	}
}

// Requests that the table describes as equal decode together: a step of 8 requests, by hand from the profile.
func TestPredictPoints(t *testing.T) {
	points, err := ReadPoints(strings.NewReader(point("1000,100", "16,1001")), "p.csv")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := PredictPoints(t.Context(), points, nil)
	if err != nil || rows[0].Skipped != "" {
		t.Fatalf("%+v, %v", rows, err)
	}
	p, _ := points[0].profile()
	l := &p.Latency
	step := l.StepMs + l.HostMs + 8*(l.StepPerRequestMs+l.HostPerRequestMs) + l.Decode.BaseMs +
		8*(l.Decode.PerRequestMs+(16+500)*l.Decode.PerKVTokenUs/1000) + l.AllReduce.Ms[3]
	testutil.Near(t, "TPOT", rows[0].Predicted[TPOT], step, 0.005*step)
	testutil.Near(t, "error", rows[0].Error[TPOT], rows[0].Predicted[TPOT]/6.5-1, 1e-9)
}

func FuzzReadPoints(f *testing.F) {
	f.Add(point("", ""))
	f.Add(point("fp8,8,2", "nvfp4,8,2"))
	f.Add(point("x.csv; silicon_concurrency=8", "2026-04-06.csv"))
	f.Fuzz(func(t *testing.T, text string) {
		points, err := ReadPoints(strings.NewReader(text), "p.csv")
		for i := range points {
			if p := &points[i]; err == nil && (p.Concurrency < 1 || p.Input < 1 || p.Output < 1 || p.GPUs < 1 ||
				!(p.seen[TPOT] > 0)) {
				t.Fatalf("%+v", p)
			}
		}
	})
}
