package replay

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// argsortValues are the inputs that testdata/numpy_argsort.json names.
var argsortValues = map[string]func(i, n int) int{
	"squares mod 97": func(i, _ int) int { return (i*i*7 + 13*i) % 97 },
	"cubes mod 1009": func(i, _ int) int { return (i*i*i + 5*i) % 1009 },
	"ascending":      func(i, _ int) int { return i },
	"descending":     func(i, n int) int { return n - i },
	"all equal":      func(int, int) int { return 3 },
	"organ pipe":     func(i, n int) int { return min(i, n-i) },
	"sawtooth":       func(i, _ int) int { return i % 5 },
}

// TestArgsortAgainstNumpy compares with orders made by numpy 1.24.2, ties
// included. The "killer" inputs are made to defeat the median of three (M. D.
// McIlroy, "A killer adversary for quicksort", 1999) and so reach the heapsort.
func TestArgsortAgainstNumpy(t *testing.T) {
	data, err := os.ReadFile("testdata/numpy_argsort.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []struct {
			Values string
			N      int
			List   []int64
			Order  []int
			SHA256 string
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) == 0 {
		t.Fatal("no cases")
	}
	for _, c := range file.Cases {
		t.Run(fmt.Sprint(c.Values, " ", c.N), func(t *testing.T) {
			v := c.List
			if f := argsortValues[c.Values]; f != nil {
				for i := range c.N {
					v = append(v, int64(f(i, c.N)))
				}
			}
			if len(v) != c.N {
				t.Fatalf("%d values, expected %d", len(v), c.N)
			}
			order := argsort(v)
			hash := sha256.New()
			for _, i := range order {
				hash.Write(binary.LittleEndian.AppendUint32(nil, uint32(i)))
			}
			if c.Order != nil && !slices.Equal(order, c.Order) {
				t.Errorf("order\n%v, numpy's is\n%v", order, c.Order)
			}
			if got := hex.EncodeToString(hash.Sum(nil)); got != c.SHA256 {
				t.Errorf("hash of the order is %s, numpy's is %s", got, c.SHA256)
			}
		})
	}
}

func TestArgsortSorts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.SliceOfN(rapid.Int64Range(-20, 20), 0, 300).Draw(t, "values")
		order := argsort(v)
		if !slices.IsSortedFunc(order, func(i, j int) int { return int(v[i] - v[j]) }) {
			t.Fatalf("not in order: %v", order)
		}
		slices.Sort(order)
		for i, x := range order {
			if i != x {
				t.Fatalf("not a permutation: %v", order)
			}
		}
	})
}
