package arrowfile

import (
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"
)

// encode writes numbers in runs: equal ones in a row as a run if there are at
// least 3 of them, others in packed groups of 8, filled up with zeros at the
// end.
func encode(numbers []uint64, width int) []byte {
	var data []byte
	for len(numbers) > 0 {
		equal := 1
		for equal < len(numbers) && numbers[equal] == numbers[0] {
			equal++
		}
		if equal >= 3 {
			data = binary.AppendUvarint(data, uint64(equal)<<1)
			for i := range (width + 7) / 8 {
				data = append(data, byte(numbers[0]>>(8*i)))
			}
			numbers = numbers[equal:]
			continue
		}
		data = binary.AppendUvarint(data, 1<<1|1)
		group := make([]byte, width)
		for i := range min(8, len(numbers)) {
			for bit := range width {
				at := i*width + bit
				group[at/8] |= byte(numbers[i]>>bit&1) << (at % 8)
			}
		}
		data = append(data, group...)
		numbers = numbers[min(8, len(numbers)):]
	}
	return data
}

func TestHybrid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.SampledFrom([]int{0, 1, 2, 3, 5, 8, 9, 16, 17, 31, 32}).Draw(t, "width")
		number := rapid.Uint64Range(0, 1<<width-1)
		if rapid.Bool().Draw(t, "repetitive") {
			number = rapid.SampledFrom([]uint64{0, 1<<width - 1})
		}
		numbers := rapid.SliceOfN(number, 1, 100).Draw(t, "numbers")
		h := NewHybrid(encode(numbers, width), width)
		equal := true
		for _, x := range numbers {
			equal = equal && x == numbers[0]
		}
		if got := h.all(numbers[0], int64(len(numbers))); got != equal {
			t.Fatalf("all equal: %v, expected %v", got, equal)
		}
		if !h.holds(int64(len(numbers))) || h.holds(int64(len(numbers))+8) {
			t.Fatalf("it does not hold %d numbers, or 8 more", len(numbers))
		}
		for i, want := range numbers {
			if got, err := h.Next(); got != want || err != nil {
				t.Fatalf("number %d is %d, %v; expected %d", i, got, err, want)
			}
			if left := int64(len(numbers) - i - 1); !h.holds(left) {
				t.Fatalf("after number %d it does not hold %d more", i, left)
			}
		}
	})
}

func TestHybridErrors(t *testing.T) {
	for what, data := range map[string][]byte{
		"no data":                  nil,
		"an endless header":        {0x80, 0x80, 0x80, 0x80, 0x80, 0x01, 0xff},
		"an empty run":             {0, 5, 2, 5},
		"an empty packed run":      {1, 2, 5},
		"a run without its number": {4},
		"a packed run without any": {3},
		"a run of a wider number":  {4, 8},
	} {
		h := NewHybrid(data, 3)
		if h.holds(1) {
			t.Errorf("%s: holds a number", what)
		}
		if h.all(5, 1) {
			t.Errorf("%s: begins with a 5", what)
		}
		if x, err := h.Next(); err == nil {
			t.Errorf("%s: next number %d, expected an error", what, x)
		}
	}
	// The last group of packed numbers may be cut short: 2 bytes hold 5 numbers
	// of 3 bits.
	h := NewHybrid([]byte{3, 0xf9, 0xff}, 3)
	n := 0
	for _, err := h.Next(); err == nil; _, err = h.Next() {
		n++
	}
	if n != 5 {
		t.Errorf("%d numbers in a group cut short, expected 5", n)
	}
}

// FuzzHybrid compares counting with reading.
func FuzzHybrid(f *testing.F) {
	f.Add(encode([]uint64{1, 1, 1, 0, 1, 0, 0}, 1), 1, 7)
	f.Add(encode([]uint64{3, 9, 27, 81, 81, 81, 81}, 9), 9, 30)
	f.Fuzz(func(t *testing.T, data []byte, width, n int) {
		if width < 0 || width > 32 || n < 0 || n > 1000 {
			return
		}
		start := NewHybrid(data, width)
		h, read, ones := start, 0, 0
		for ; read < n; read++ {
			x, err := h.Next()
			if err != nil {
				break
			}
			if x >= 1<<width {
				t.Fatalf("%d has more than %d bits", x, width)
			}
			if x == 1 && ones == read {
				ones++
			}
		}
		if got := start.holds(int64(n)); got != (read == n) {
			t.Errorf("holds %d numbers: %v, but %d could be read", n, got, read)
		}
		if got := start.all(1, int64(n)); got != (ones == n) {
			t.Errorf("begins with %d ones: %v, but it has %d", n, got, ones)
		}
	})
}
