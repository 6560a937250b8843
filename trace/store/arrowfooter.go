package store

import (
	"encoding/binary"
	"errors"
	"fmt"

	flatbuffers "github.com/google/flatbuffers/go"
)

// Slots of the tables of an Arrow IPC file's footer that hold lengths, as the
// Arrow format specification numbers them (File.fbs, Schema.fbs). The n-th
// field of a table has slot 4 + 2n.
const (
	footerSchema       = 6
	footerDictionaries = 8
	footerBatches      = 10
	schemaFields       = 6
	schemaMetadata     = 8
	fieldDictionary    = 12
	fieldChildren      = 14
	fieldMetadata      = 16
)

// checkFooter checks the lengths that the footer of an Arrow IPC file states.
// The library takes memory for as many items as they say, so that a damaged
// footer could exhaust it, which no recover can catch. What is not a footer at
// all is left to the library to report.
func checkFooter(f *file) error {
	const tail = 4 + len("ARROW1") // the footer's length and the magic bytes
	var end [tail]byte
	if f.size < int64(tail) {
		return nil
	}
	if _, err := f.ReadAt(end[:], f.size-int64(tail)); err != nil {
		return err
	}
	size := int64(binary.LittleEndian.Uint32(end[:]))
	if size < 4 || size > f.size-int64(tail) {
		return nil
	}
	footer := make([]byte, size)
	if _, err := f.ReadAt(footer, f.size-int64(tail)-size); err != nil {
		return err
	}
	root := flatbuffers.Table{Bytes: footer, Pos: flatbuffers.GetUOffsetT(footer)}
	if n := vectorLen(root, footerDictionaries); n != 0 {
		return errors.New("has columns in dictionary encoding, expected plain numbers")
	}
	schema := root.Offset(footerSchema)
	if schema == 0 {
		return nil
	}
	s := flatbuffers.Table{Bytes: footer, Pos: root.Indirect(root.Pos + flatbuffers.UOffsetT(schema))}
	if err := errors.Join(fits(root, footerBatches, 24), fits(s, schemaFields, 4), fits(s, schemaMetadata, 4)); err != nil {
		return err
	}
	for i := range vectorLen(s, schemaFields) {
		at := s.Vector(flatbuffers.UOffsetT(s.Offset(schemaFields))) + flatbuffers.UOffsetT(4*i)
		field := flatbuffers.Table{Bytes: footer, Pos: s.Indirect(at)}
		if field.Offset(fieldDictionary) != 0 || vectorLen(field, fieldChildren) != 0 {
			return fmt.Errorf("column %d is nested or in dictionary encoding, expected plain numbers", i+1)
		}
		if err := fits(field, fieldMetadata, 4); err != nil {
			return err
		}
	}
	return nil
}

// vectorLen returns the length of the vector in a slot of a table, 0 if there
// is none.
func vectorLen(t flatbuffers.Table, slot flatbuffers.VOffsetT) int {
	o := t.Offset(slot)
	if o == 0 {
		return 0
	}
	return t.VectorLen(flatbuffers.UOffsetT(o))
}

// fits checks that the items of a vector, each of the given size in bytes, fit
// the buffer that holds them.
func fits(t flatbuffers.Table, slot flatbuffers.VOffsetT, size int) error {
	if n := vectorLen(t, slot); n > len(t.Bytes)/size {
		return fmt.Errorf("states %d items in a footer of %d bytes", n, len(t.Bytes))
	}
	return nil
}
