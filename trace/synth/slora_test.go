package synth

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"

	"lorasim/trace"
)

// sloraCase is one run of S-LoRA's own generator.
type sloraCase struct {
	NumAdapters int          `json:"num_adapters"`
	Alpha       float64      `json:"alpha"`
	ReqRate     float64      `json:"req_rate"`
	CV          float64      `json:"cv"`
	Duration    float64      `json:"duration"`
	Seed        uint32       `json:"seed"`
	InputRange  [2]int32     `json:"input_range"`
	OutputRange [2]int32     `json:"output_range"`
	N           int          `json:"n"`
	First       [][4]float64 `json:"first"` // adapter, input, output, time
	Last        [][4]float64 `json:"last"`
	TopCounts   [][2]int     `json:"top_counts"` // adapter, count
	Distinct    int          `json:"distinct"`
	SHA256      string       `json:"sha256_le_3int32_float64"`
}

func TestSLoRAReproducesItsGenerator(t *testing.T) {
	data, err := os.ReadFile("testdata/slora_golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct{ Cases []sloraCase }
	if err := json.Unmarshal(data, &golden); err != nil {
		t.Fatal(err)
	}
	if len(golden.Cases) != 6 {
		t.Fatalf("%d cases, expected 6", len(golden.Cases))
	}
	var all [][]trace.Request
	for i, c := range golden.Cases {
		src, err := NewSLoRA(SLoRA{
			Adapters: c.NumAdapters, Alpha: c.Alpha, Rate: c.ReqRate, CV: c.CV,
			Duration: c.Duration, Seed: c.Seed, Input: c.InputRange, Output: c.OutputRange,
		})
		if err != nil {
			t.Fatal(err)
		}
		w, err := trace.Collect(src)
		if err != nil {
			t.Fatal(err)
		}
		if len(w.Requests) != c.N {
			t.Fatalf("case %d: %d requests, expected %d", i, len(w.Requests), c.N)
		}
		c.checkRows(t, i, w.Requests)
		all = append(all, w.Requests)
	}
	// Case 3 is case 0, whose rows are all checked, with another CV: only the
	// times differ.
	for j, r := range all[3] {
		r.Arrival = all[0][j].Arrival
		if r != all[0][j] {
			t.Errorf("case 3: request %d is %+v, expected that of case 0, %+v", j, r, all[0][j])
		}
	}
}

// checkRows compares adapters and lengths exactly and times to 1e-9 relative.
func (c sloraCase) checkRows(t *testing.T, i int, rs []trace.Request) {
	compare := func(want [][4]float64, rs []trace.Request) {
		for j, w := range want {
			r := rs[j]
			if float64(r.Adapter) != w[0] || float64(r.Prompt) != w[1] || float64(r.Output) != w[2] ||
				math.Abs(r.Arrival-w[3]) > 1e-9*w[3] {
				t.Errorf("case %d, request %d is %+v, expected %v", i, r.ID, r, w)
			}
		}
	}
	compare(c.First, rs)
	compare(c.Last, rs[len(rs)-len(c.Last):])

	counts := map[int32]int{}
	var rows bytes.Buffer
	for j, r := range rs {
		if err := r.Check(c.NumAdapters); err != nil || r.ID != int64(j) {
			t.Errorf("case %d: request %d: %+v: %v", i, j, r, err)
		}
		counts[r.Adapter]++
		binary.Write(&rows, binary.LittleEndian, []int32{r.Adapter, r.Prompt, r.Output})
		binary.Write(&rows, binary.LittleEndian, r.Arrival)
	}
	for _, w := range c.TopCounts {
		if counts[int32(w[0])] != w[1] {
			t.Errorf("case %d: adapter %d has %d requests, expected %d", i, w[0], counts[int32(w[0])], w[1])
		}
	}
	if len(counts) != c.Distinct {
		t.Errorf("case %d: %d adapters used, expected %d", i, len(counts), c.Distinct)
	}
	// Times at cv > 1 take powers, which may differ from the C library's in the
	// last bit; elsewhere all rows are equal, unless the compiler fuses products.
	sum := sha256.Sum256(rows.Bytes())
	if c.CV <= 1 && runtime.GOARCH == "amd64" && hex.EncodeToString(sum[:]) != c.SHA256 {
		t.Errorf("case %d: rows differ from the reference", i)
	}
}

func TestSLoRAErrors(t *testing.T) {
	good := SLoRA{Adapters: 4, Alpha: 1, Rate: 2, CV: 1, Duration: 10, Input: [2]int32{8, 512},
		Output: [2]int32{8, 512}}
	for _, test := range []struct {
		want string
		edit func(*SLoRA)
	}{
		{"is 0.5 requests, expected 1 to", func(c *SLoRA) { c.Rate = 0.05 }},
	} {
		c := good
		test.edit(&c)
		if _, err := NewSLoRA(c); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("error %v, expected %q", err, test.want)
		}
	}
}
