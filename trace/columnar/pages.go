package columnar

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/delta"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// The Parquet library trusts the counts in a file. A list of 2 billion row groups, or a run of as many equal
// numbers, takes a few bytes in a file but would take all memory. So each such count is compared with the data that
// follows it before the library reads it. The library checks the values themselves.

const (
	maxPage   = 64 << 20 // bytes of a page, unpacked
	maxValues = 16 << 20 // of a page
	maxHeader = 64 << 10 // bytes of a page's header
)

// checkParquetFooter checks the footer of a Parquet file.
func checkParquetFooter(src io.ReaderAt, size int64) error {
	footer, err := readFooter(src, size, "a Parquet", "PAR1", 4)
	if err == nil {
		_, err = skim(footer, thriftStruct, 0)
	}
	return err
}

// Types of Thrift's compact protocol.
const (
	thriftTrue, thriftFalse, thriftByte, thriftInt16 = 1, 2, 3, 4
	thriftDouble, thriftBinary                       = 7, 8
	thriftList, thriftSet, thriftStruct              = 9, 10, 12
)

// skim skips a value of Thrift's compact protocol and returns what follows it. It returns an error if a list has
// more items than bytes follow.
func skim(b []byte, kind byte, depth int) ([]byte, error) {
	const deepest = 32
	if len(b) == 0 || depth > deepest {
		return nil, errDamaged
	}
	number, used := binary.Uvarint(b)
	switch {
	case kind == thriftStruct:
		return skimStruct(b, depth)
	case kind == thriftList || kind == thriftSet:
		return skimList(b, depth)
	case kind == thriftByte:
		used = 1
	case kind == thriftDouble:
		used = 8
	case used <= 0 || kind < thriftInt16 || kind > thriftBinary: // also maps, which Parquet does not use
		return nil, errDamaged
	case kind == thriftBinary:
		used += int(min(number, uint64(len(b))))
	}
	if used > len(b) {
		return nil, errDamaged
	}
	return b[used:], nil
}

func skimList(b []byte, depth int) (_ []byte, err error) {
	kind, n, used := b[0]&15, uint64(b[0]>>4), 1
	if n == 15 {
		n, used = binary.Uvarint(b[1:])
		used++
	}
	if used <= 0 || n > uint64(len(b)-used) {
		return nil, errDamaged
	}
	if kind == thriftTrue || kind == thriftFalse {
		kind = thriftByte
	}
	for b = b[used:]; n > 0 && err == nil; n-- {
		b, err = skim(b, kind, depth+1)
	}
	return b, err
}

func skimStruct(b []byte, depth int) (_ []byte, err error) {
	for len(b) > 0 && err == nil {
		head := b[0]
		if b = b[1:]; head == 0 {
			return b, nil
		}
		if head>>4 == 0 { // the number of the field stands by itself
			b, err = skim(b, thriftInt16, depth)
		}
		if kind := head & 15; err == nil && kind != thriftTrue && kind != thriftFalse {
			b, err = skim(b, kind, depth+1)
		}
	}
	return nil, errDamaged
}

// checkPages checks the pages of a column chunk.
func checkPages(src io.ReaderAt, size int64, m *format.ColumnMetaData, leaf parquet.LeafColumn) error {
	at, n := m.DataPageOffset, m.TotalCompressedSize
	if m.DictionaryPageOffset != 0 {
		at = m.DictionaryPageOffset
	}
	if at < 0 || n < 0 || at > size || n > size-at {
		return fmt.Errorf("%d bytes at offset %d exceed a file of %d bytes", n, at, size)
	}
	head := make([]byte, min(maxHeader, n))
	var page []byte
	for end := at + n; at < end; {
		head = head[:min(int64(len(head)), end-at)]
		if _, err := src.ReadAt(head, at); err != nil {
			return err
		}
		rest, err := skim(head, thriftStruct, 0)
		if err != nil {
			return err
		}
		used := len(head) - len(rest)
		var h format.PageHeader
		if err := thrift.Unmarshal(&thrift.CompactProtocol{}, head[:used], &h); err != nil {
			return err
		}
		at += int64(used)
		length := int64(h.CompressedPageSize)
		if length < 0 || length > end-at || h.UncompressedPageSize < 0 || h.UncompressedPageSize > maxPage {
			return errDamaged
		}
		if int64(cap(page)) < length {
			page = make([]byte, length)
		}
		if _, err := src.ReadAt(page[:length], at); err != nil && length > 0 {
			return err
		}
		if err := checkPage(&h, m.Codec, page[:length], leaf); err != nil {
			return err
		}
		at += length
	}
	return nil
}

// checkPage checks a page: the levels and indices in it are stored in runs.
func checkPage(h *format.PageHeader, codec format.CompressionCodec, data []byte, leaf parquet.LeafColumn) (err error) {
	most := int64(h.UncompressedPageSize)
	repWidth, defWidth := bits.Len(uint(leaf.MaxRepetitionLevel)), bits.Len(uint(leaf.MaxDefinitionLevel))
	switch h.Type {
	case format.DictionaryPage:
		p := &h.DictionaryPageHeader.V
		//lint:ignore SA1019 older files have it
		if p.Encoding != format.Plain && p.Encoding != format.PlainDictionary { // in runs it could be endless
			return fmt.Errorf("dictionary in encoding %v, expected PLAIN", p.Encoding)
		}
		data, err = unpack(codec, data, most)
		if err == nil && int64(p.NumValues) > int64(len(data)) { // a value takes 4 bytes or more
			err = errDamaged
		}
		return err
	case format.DataPage:
		p := &h.DataPageHeader.V
		if data, err = unpack(codec, data, most); err != nil {
			return err
		}
		for _, width := range []int{repWidth, defWidth} {
			if width == 0 {
				continue
			}
			if len(data) < 4 || uint64(binary.LittleEndian.Uint32(data)) > uint64(len(data)-4) {
				return errDamaged
			}
			n := 4 + int(binary.LittleEndian.Uint32(data))
			if err := checkRuns(data[4:n], width, p.NumValues); err != nil {
				return err
			}
			data = data[n:]
		}
		return checkValues(p.Encoding, data, p.NumValues)
	case format.DataPageV2:
		p := &h.DataPageHeaderV2.V
		rep, def := int64(p.RepetitionLevelsByteLength), int64(p.DefinitionLevelsByteLength)
		if rep < 0 || def < 0 || rep+def > int64(len(data)) {
			return errDamaged
		}
		if err := errors.Join(checkRuns(data[:rep], repWidth, p.NumValues), checkRuns(data[rep:rep+def], defWidth,
			p.NumValues)); err != nil {
			return err
		}
		if data = data[rep+def:]; !p.IsCompressed.Valid || p.IsCompressed.V {
			if data, err = unpack(codec, data, most); err != nil {
				return err
			}
		}
		return checkValues(p.Encoding, data, p.NumValues)
	}
	return nil // the library passes over an index page
}

// checkValues checks that the values of a page take no more memory than they may: n values, texts of maxPage bytes.
// All encodings of current Parquet writers are known.
func checkValues(e format.Encoding, data []byte, n int32) error {
	switch {
	case n < 0 || n > maxValues:
		return fmt.Errorf("page states %d values, expected at most %d", n, maxValues)
	//lint:ignore SA1019 older files have it
	case e == format.RLEDictionary || e == format.PlainDictionary:
		if len(data) == 0 {
			return nil
		}
		return checkRuns(data[1:], int(data[0]), n)
	}
	switch e {
	case format.Plain, format.ByteStreamSplit: // as large as the data
		return nil
	case format.DeltaBinaryPacked, format.DeltaLengthByteArray:
		return checkDelta(data, n)
	case format.DeltaByteArray:
		return checkPrefixes(data, n)
	}
	return fmt.Errorf("encoding %v is not supported, expected PLAIN, a dictionary, BYTE_STREAM_SPLIT or DELTA_*", e)
}

// checkDelta checks the header of delta-encoded whole numbers (Parquet format, "Delta Encoding"): the numbers of a
// block, of its parts and of all values. The lengths of texts are such numbers, before the texts.
func checkDelta(data []byte, n int32) error {
	const largestBlock = 1 << 20
	var header [3]uint64
	for i := range header {
		x, used := binary.Uvarint(data)
		if used <= 0 {
			return errDamaged
		}
		header[i], data = x, data[used:]
	}
	if header[0] > largestBlock || header[1] == 0 || header[1] > header[0] || header[2] > uint64(n) {
		return errDamaged
	}
	return nil
}

// checkPrefixes checks prefix-compressed texts, each of which begins with a prefix of the text before it. Together
// they may take maxPage bytes.
func checkPrefixes(data []byte, n int32) error {
	if err := checkDelta(data, n); err != nil {
		return err
	}
	var packed delta.BinaryPackedEncoding
	shared, err := packed.DecodeInt32(nil, data)
	if err != nil {
		return err
	}
	total := int64(len(data))
	for _, length := range shared {
		if total += int64(length); length < 0 || total > maxPage {
			return fmt.Errorf("texts of a page take more than %d bytes", maxPage)
		}
	}
	return nil
}

// checkRuns checks numbers of the given width in bits in Parquet's hybrid of run-length encoding and bit packing
// (Parquet format, "Encodings"). The lowest bit of a varint header distinguishes header>>1 groups of 8 packed
// numbers from a run of header>>1 equal ones. There may be more than n numbers, to fill up the last group.
func checkRuns(data []byte, width int, n int32) error {
	const spare = 1 << 10
	left := int64(n) + spare
	for len(data) > 0 {
		header, used := binary.Uvarint(data)
		count, size := int64(header>>1), int64(width+7)/8
		if used <= 0 || used > binary.MaxVarintLen32 || width > 32 {
			return errDamaged
		}
		if header&1 == 1 {
			count, size = 8*count, count*int64(width)
		}
		if left -= count; left < 0 {
			return errDamaged
		}
		data = data[min(int64(used)+size, int64(len(data))):]
	}
	return nil
}

// unpack returns the contents of a page, which must not be longer than stated.
func unpack(codec format.CompressionCodec, data []byte, most int64) ([]byte, error) {
	var r io.Reader
	var err error
	switch codec {
	case format.Uncompressed:
		return data, nil
	case format.Snappy:
		if n, err := snappy.DecodedLen(data); err != nil || int64(n) > most {
			return nil, errDamaged
		}
		return snappy.Decode(nil, data)
	case format.Gzip:
		r, err = gzip.NewReader(bytes.NewReader(data))
	case format.Brotli:
		r = brotli.NewReader(bytes.NewReader(data))
	case format.Zstd:
		z, err := zstd.NewReader(bytes.NewReader(data), zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderMaxMemory(maxPage))
		if err != nil {
			return nil, err
		}
		defer z.Close()
		r = z
	default:
		return nil, fmt.Errorf("compression %v is not supported, expected SNAPPY, GZIP, BROTLI, ZSTD or none", codec)
	}
	if err != nil {
		return nil, err
	}
	data, err = io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(data)) > most {
		err = errDamaged
	}
	return data, err
}

// readFooter reads the footer of a file. The file begins with the magic bytes, possibly followed by more, and ends
// with the footer, its length and the magic bytes. what is the name of the format with its article.
func readFooter(src io.ReaderAt, size int64, what, magic string, begin int64) ([]byte, error) {
	tail := make([]byte, 4+len(magic))
	room := size - begin - int64(len(tail))
	if room < 0 {
		return nil, fmt.Errorf("not %s file: too short", what)
	}
	if _, err := src.ReadAt(tail, size-int64(len(tail))); err != nil {
		return nil, err
	}
	if string(tail[4:]) != magic {
		return nil, fmt.Errorf("not %s file, or cut short: it does not end in %s", what, magic)
	}
	n := int64(binary.LittleEndian.Uint32(tail))
	if n > room {
		return nil, errDamaged
	}
	footer := make([]byte, n)
	_, err := src.ReadAt(footer, size-int64(len(tail))-n)
	return footer, err
}
