package table

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	flatbuffers "github.com/google/flatbuffers/go"
)

// Slots of the tables in the footer of an Arrow IPC file (Arrow columnar format,
// "IPC File Format"; File.fbs and Schema.fbs). The n-th field of a table, from
// 0, has slot 4 + 2n.
const (
	footerSchema       = 6
	footerDictionaries = 8
	footerBatches      = 10
	schemaFields       = 6
	schemaMetadata     = 8
	fieldType          = 8
	fieldDictionary    = 12
	fieldChildren      = 14
	fieldMetadata      = 16
)

const (
	magic     = "ARROW1"
	maxFields = 1000 // of a schema, with the pairs of its metadata
	blockSize = 24   // bytes of the place of a record batch
)

// plainTypes are the type tags whose metadata hold no counts of their own: Null,
// Int, FloatingPoint, Binary, Utf8, Bool, Timestamp, List, Struct_ and
// LargeUtf8.
var plainTypes = map[byte]bool{1: true, 2: true, 3: true, 4: true, 5: true, 6: true, 10: true, 12: true, 13: true, 20: true}

var errFooter = errors.New("damaged footer")

// checkFooter checks what the footer of an Arrow IPC file states, for the
// library takes memory for as many items and goes through as many as that. It
// panics where the footer points beyond its end.
func checkFooter(src io.ReaderAt, size int64) error {
	tail := make([]byte, 4+len(magic)) // the footer's length and the magic bytes
	if size < int64(2*len(tail)) {
		return errors.New("not an Arrow file: too short")
	}
	if _, err := src.ReadAt(tail, size-int64(len(tail))); err != nil {
		return err
	}
	if string(tail[4:]) != magic {
		return errors.New("not an Arrow file, or cut short: it does not end in ARROW1")
	}
	n := int64(binary.LittleEndian.Uint32(tail))
	if n > size-int64(2*len(tail)) {
		return errFooter
	}
	data := make([]byte, n)
	if _, err := src.ReadAt(data, size-int64(len(tail))-n); err != nil {
		return err
	}
	footer := table{flatbuffers.Table{Bytes: data, Pos: flatbuffers.GetUOffsetT(data)}}
	if _, n, err := footer.vector(footerDictionaries, blockSize); err != nil {
		return err
	} else if n > 0 {
		return errors.New("has dictionary-encoded columns, expected plain ones")
	}
	if err := footer.checkBatches(uint64(size)); err != nil {
		return err
	}
	o := footer.Offset(footerSchema)
	if o == 0 {
		return errFooter
	}
	left := maxFields
	return footer.at(footer.Pos+flatbuffers.UOffsetT(o)).checkFields(schemaFields, schemaMetadata, &left)
}

// table is a FlatBuffers table, whose vectors may be longer than they can be.
type table struct{ flatbuffers.Table }

// at returns the table that the offset at pos points to.
func (t table) at(pos flatbuffers.UOffsetT) table {
	return table{flatbuffers.Table{Bytes: t.Bytes, Pos: t.Indirect(pos)}}
}

// vector returns where the vector in a slot begins and how many items of the
// given size in bytes it has, none if it is absent.
func (t table) vector(slot flatbuffers.VOffsetT, size uint64) (start flatbuffers.UOffsetT, n int, err error) {
	o := t.Offset(slot)
	if o == 0 {
		return 0, 0, nil
	}
	start, n = t.Vector(flatbuffers.UOffsetT(o)), t.VectorLen(flatbuffers.UOffsetT(o))
	if uint64(n)*size > uint64(len(t.Bytes[start:])) {
		return 0, 0, errFooter
	}
	return start, n, nil
}

// tables returns the tables of a vector of tables.
func (t table) tables(slot flatbuffers.VOffsetT) ([]table, error) {
	start, n, err := t.vector(slot, flatbuffers.SizeUOffsetT)
	if err != nil {
		return nil, err
	}
	if n > maxFields {
		return nil, fmt.Errorf("has more than %d columns", maxFields)
	}
	all := make([]table, n)
	for i := range all {
		all[i] = t.at(start + flatbuffers.UOffsetT(i*flatbuffers.SizeUOffsetT))
	}
	return all, nil
}

// checkBatches checks that the record batches lie within the file: each place
// has an offset (int64), the length of the metadata (int32, padded) and that of
// the body (int64).
func (t table) checkBatches(size uint64) error {
	start, n, err := t.vector(footerBatches, blockSize)
	if err != nil {
		return err
	}
	for b := t.Bytes[start:]; n > 0; n-- {
		offset := binary.LittleEndian.Uint64(b)
		meta := uint64(binary.LittleEndian.Uint32(b[8:]))
		body := binary.LittleEndian.Uint64(b[16:])
		if offset > size || meta > size || body > size || offset+meta+body > size {
			return errFooter
		}
		b = b[blockSize:]
	}
	return nil
}

// checkFields checks the fields in a slot, all fields below them, and the
// metadata beside them.
func (t table) checkFields(fields, metadata flatbuffers.VOffsetT, left *int) error {
	pairs, err := t.tables(metadata)
	if err != nil {
		return err
	}
	children, err := t.tables(fields)
	if err != nil {
		return err
	}
	if *left -= len(pairs) + len(children); *left < 0 {
		return fmt.Errorf("has more than %d columns", maxFields)
	}
	for _, c := range children {
		if !plainTypes[c.GetByteSlot(fieldType, 0)] || c.Offset(fieldDictionary) != 0 {
			return errors.New("has a column of a type that is not supported: expected numbers, text or lists")
		}
		if err := c.checkFields(fieldChildren, fieldMetadata, left); err != nil {
			return err
		}
	}
	return nil
}
