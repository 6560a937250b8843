package records

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The Arrow library trusts the counts in a file's footer: a damaged one keeps it
// busy for ever. checkFooter walks the footer first (Arrow columnar format, "IPC
// File Format"; its metadata are FlatBuffers, whose tables hold offsets to
// fields by slot).

// flatTable is a table in a FlatBuffer. Reading out of bounds panics, which
// guard turns into an error.
type flatTable struct {
	data []byte
	pos  uint32
}

// Slots of the tables, in the order of their fields in Schema.fbs and File.fbs.
const (
	footerSchema, footerDictionaries, footerBatches = 1, 2, 3
	schemaFields, schemaMetadata                    = 1, 2
	fieldType, fieldDictionary                      = 2, 4
	fieldChildren, fieldMetadata                    = 5, 6
	maxFields                                       = 1000 // far more than any file of records
	arrowMagic                                      = "ARROW1"
)

// readableTypes are the type tags whose metadata hold no counts of their own:
// Null, Int, FloatingPoint, Binary, Utf8, Bool, Timestamp, List, Struct_ and
// LargeUtf8.
var readableTypes = map[byte]bool{1: true, 2: true, 3: true, 4: true, 5: true, 6: true, 10: true, 12: true, 13: true, 20: true}

var errFooter = errors.New("damaged footer")

func checkFooter(f seekable) error {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	tail := make([]byte, 4+len(arrowMagic))
	if size < int64(2*len(tail)) {
		return errors.New("not an Arrow file: too short")
	}
	if _, err := f.ReadAt(tail, size-int64(len(tail))); err != nil {
		return err
	}
	if string(tail[4:]) != arrowMagic {
		return errors.New("not an Arrow file, or cut short: it does not end in ARROW1")
	}
	n := int64(binary.LittleEndian.Uint32(tail))
	if n > size-int64(2*len(tail)) {
		return errFooter
	}
	data := make([]byte, n)
	if _, err := f.ReadAt(data, size-int64(len(tail))-n); err != nil {
		return err
	}
	footer := flatTable{data, binary.LittleEndian.Uint32(data)}
	if _, n, err := footer.vector(footerDictionaries, 24); err != nil {
		return err
	} else if n > 0 {
		return errors.New("has dictionary-encoded columns, expected plain ones")
	}
	if err := footer.checkBlocks(uint64(size)); err != nil {
		return err
	}
	schema, ok := footer.table(footerSchema)
	if !ok {
		return errFooter
	}
	left := maxFields
	return schema.checkFields(schemaFields, schemaMetadata, &left)
}

// checkBlocks checks that the record batches lie within the file: each block has
// an offset (int64), the length of its metadata (int32, padded) and of its body
// (int64).
func (t flatTable) checkBlocks(size uint64) error {
	const blockSize = 24
	at, n, err := t.vector(footerBatches, blockSize)
	if err != nil {
		return err
	}
	for b := t.data[at:]; n > 0; n-- {
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

// checkFields checks the fields in the given slot and all below them, and the
// metadata beside them.
func (t flatTable) checkFields(fields, metadata int, left *int) error {
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
		at := c.slot(fieldType)
		if at == 0 || !readableTypes[c.data[at]] || c.slot(fieldDictionary) != 0 {
			return errors.New("has a column of a type that no file of records has")
		}
		if err := c.checkFields(fieldChildren, fieldMetadata, left); err != nil {
			return err
		}
	}
	return nil
}

// slot returns where the field of a slot lies, 0 if it is absent.
func (t flatTable) slot(i int) uint32 {
	vtable := t.pos - binary.LittleEndian.Uint32(t.data[t.pos:])
	entry := uint32(4 + 2*i)
	if entry >= uint32(binary.LittleEndian.Uint16(t.data[vtable:])) {
		return 0
	}
	if off := binary.LittleEndian.Uint16(t.data[vtable+entry:]); off != 0 {
		return t.pos + uint32(off)
	}
	return 0
}

// table returns the table that a slot points to.
func (t flatTable) table(slot int) (flatTable, bool) {
	at := t.slot(slot)
	if at == 0 {
		return flatTable{}, false
	}
	return flatTable{t.data, at + binary.LittleEndian.Uint32(t.data[at:])}, true
}

// vector returns where the elements of a vector begin and how many there are.
func (t flatTable) vector(slot int, size uint64) (at, n uint32, err error) {
	v, ok := t.table(slot)
	if !ok {
		return 0, 0, nil
	}
	n = binary.LittleEndian.Uint32(t.data[v.pos:])
	if at = v.pos + 4; uint64(n)*size > uint64(len(t.data[at:])) {
		return 0, 0, errFooter
	}
	return at, n, nil
}

// tables returns the tables of a vector of tables.
func (t flatTable) tables(slot int) ([]flatTable, error) {
	at, n, err := t.vector(slot, 4)
	if err != nil || n > maxFields {
		return nil, cmp.Or(err, errFooter)
	}
	all := make([]flatTable, n)
	for i := range all {
		all[i] = flatTable{t.data, at + binary.LittleEndian.Uint32(t.data[at:])}
		at += 4
	}
	return all, nil
}
