package arrowfile

import (
	"encoding/binary"
	"errors"
)

// Hybrid reads whole numbers in Parquet's hybrid of run-length encoding and bit
// packing (Parquet format, "Encodings"): a varint header whose lowest bit tells
// header>>1 groups of 8 packed numbers from a run of header>>1 equal ones.
// Levels and the indices into a dictionary are stored so.
type Hybrid struct {
	data  []byte
	width uint // bits of a number

	left   uint64 // numbers left in the run
	same   uint64 // the number of a run of equal ones
	packed bool   // the run is bit-packed instead
	rest   []byte // of a bit-packed run
	bits   uint64 // bits read of it
	have   uint   // how many
}

// NewHybrid reads numbers of width bits, 0 to 32.
func NewHybrid(data []byte, width int) Hybrid { return Hybrid{data: data, width: uint(width)} }

var (
	errRuns = errors.New("damaged page: it ends too early")
	errWide = errors.New("damaged page: a number with more bits than its column's")
)

// run goes to the next run. An empty one is an error, like a header of more than
// 32 bits: the library would loop over it.
func (h *Hybrid) run() error {
	header, n := binary.Uvarint(h.data)
	count := header >> 1
	if n <= 0 || n > binary.MaxVarintLen32 || count == 0 {
		return errRuns
	}
	h.data = h.data[n:]
	if h.packed = header&1 == 1; h.packed {
		size := count * uint64(h.width)
		count *= 8
		if have := uint64(len(h.data)); size > have { // the last group may be cut short
			count, size = have*8/uint64(h.width), have
		}
		h.rest, h.data = h.data[:size], h.data[size:]
		h.left, h.bits, h.have = count, 0, 0
		return nil
	}
	size := int(h.width+7) / 8
	if size > len(h.data) {
		return errRuns
	}
	h.left, h.same = count, 0
	for i, b := range h.data[:size] {
		h.same |= uint64(b) << (8 * i)
	}
	h.data = h.data[size:]
	if h.same>>h.width != 0 {
		return errWide
	}
	return nil
}

// Next returns the next number.
func (h *Hybrid) Next() (uint64, error) {
	for h.left == 0 {
		if err := h.run(); err != nil {
			return 0, err
		}
	}
	h.left--
	if !h.packed {
		return h.same, nil
	}
	for h.have < h.width {
		h.bits |= uint64(h.rest[0]) << h.have
		h.rest = h.rest[1:]
		h.have += 8
	}
	x := h.bits & (1<<h.width - 1)
	h.bits >>= h.width
	h.have -= h.width
	return x, nil
}

// holds says whether there are at least n numbers to come.
func (h Hybrid) holds(n int64) bool {
	for n -= int64(h.left); n > 0; n -= int64(h.left) {
		if h.run() != nil {
			return false
		}
	}
	return true
}

// all says whether the next n numbers are there and equal x.
func (h Hybrid) all(x uint64, n int64) bool {
	for n > 0 {
		got, err := h.Next()
		if err != nil || got != x {
			return false
		}
		n--
		if !h.packed { // the rest of the run at once
			n -= int64(h.left)
			h.left = 0
		}
	}
	return true
}
