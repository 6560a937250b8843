package extproc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Messages of envoy.service.ext_proc.v3, as far as a picker needs them. Field numbers are those of
// external_processor.proto, config/core/v3/base.proto and google/protobuf/struct.proto. The code reads and writes
// fields without google.golang.org/protobuf, which would be a twentieth of a first build.

// field is the number of a field.
type field int32

// Types of fields on the wire. None of the messages has groups, types 3 and 4.
const (
	varintType  = 0
	fixed64Type = 1
	bytesType   = 2
	fixed32Type = 5
)

// kind is the field of ProcessingRequest's oneof. Answers of the same kind have the number less 1.
type kind field

const (
	requestHeaders   kind = 2
	responseHeaders  kind = 3
	requestBody      kind = 4
	responseBody     kind = 5
	requestTrailers  kind = 6
	responseTrailers kind = 7
)

// message is a ProcessingRequest.
type message struct {
	kind    kind
	headers []header
	body    []byte
	end     bool // end_of_stream
	// subset is the list of the metadata envoy.lb.subset_hint; nil: there is none.
	subset *[]string
}

type header struct{ key, value string }

var errWire = errors.New("malformed message")

// fields calls visit for each field of a message. visit gets the content of length-delimited fields, or the number of
// varints.
func fields(b []byte, visit func(n field, content []byte, number uint64) error) error {
	for len(b) > 0 {
		tag, size := binary.Uvarint(b)
		if size <= 0 || tag>>3 == 0 || tag>>3 > math.MaxInt32 {
			return errWire
		}
		b = b[size:]
		var content []byte
		var number uint64
		switch tag & 7 {
		case varintType:
			number, size = binary.Uvarint(b)
		case fixed64Type:
			size = 8
		case bytesType:
			var length uint64
			if length, size = binary.Uvarint(b); size <= 0 || length > uint64(len(b)-size) {
				return errWire
			}
			b = b[size:]
			content, size = b[:length], int(length)
		case fixed32Type:
			size = 4
		default:
			return errWire
		}
		if size < 0 || size > len(b) || size == 0 && tag&7 != bytesType {
			return errWire
		}
		if err := visit(field(tag>>3), content, number); err != nil {
			return err
		}
		b = b[size:]
	}
	return nil
}

// parse reads a ProcessingRequest.
func parse(b []byte) (*message, error) {
	m := &message{}
	err := fields(b, func(n field, content []byte, _ uint64) error {
		switch k := kind(n); k {
		case requestHeaders, responseHeaders:
			m.kind = k
			return m.parseHeaders(content, 3)
		case requestTrailers, responseTrailers:
			m.kind = k
			return m.parseHeaders(content, 0)
		case requestBody, responseBody:
			m.kind = k
			return fields(content, func(n field, content []byte, number uint64) error {
				switch n {
				case 1:
					m.body = content
				case 2:
					m.end = number != 0
				}
				return nil
			})
		case 8:
			return m.parseMetadata(content)
		}
		return nil
	})
	if err == nil && m.kind == 0 {
		err = fmt.Errorf("%w: no headers, body or trailers", errWire)
	}
	return m, err
}

// parseHeaders reads HttpHeaders or HttpTrailers; end is the number of end_of_stream, 0 without one.
func (m *message) parseHeaders(b []byte, end field) error {
	return fields(b, func(n field, content []byte, number uint64) error {
		switch {
		case n == 1:
			return fields(content, func(n field, content []byte, _ uint64) error {
				if n != 1 {
					return nil
				}
				return m.parseHeader(content)
			})
		case n == end:
			m.end = number != 0
		}
		return nil
	})
}

func (m *message) parseHeader(b []byte) error {
	var h header
	err := fields(b, func(n field, content []byte, _ uint64) error {
		switch {
		case n == 1:
			h.key = string(content)
		case (n == 2 || n == 3) && len(content) > 0: // value or raw_value
			h.value = string(content)
		}
		return nil
	})
	m.headers = append(m.headers, h)
	return err
}

// get is the value of a header, "" without it.
func (m *message) get(key string) string {
	for _, h := range m.headers {
		if h.key == key {
			return h.value
		}
	}
	return ""
}

// Names of the protocol between gateways and endpoint pickers.
const (
	destinationKey    = "x-gateway-destination-endpoint"
	metadataNamespace = "envoy.lb"
	subsetNamespace   = "envoy.lb.subset_hint"
	subsetKey         = "x-gateway-destination-endpoint-subset"
)

// parseMetadata reads the subset hint out of config.core.v3.Metadata.
func (m *message) parseMetadata(b []byte) error {
	return fields(b, func(n field, content []byte, _ uint64) error {
		if n != 1 {
			return nil
		}
		key, value, err := entry(content)
		if err != nil || key != subsetNamespace {
			return err
		}
		return fields(value, func(n field, content []byte, _ uint64) error { // Struct
			if n != 1 {
				return nil
			}
			key, value, err := entry(content)
			if err != nil || key != subsetKey {
				return err
			}
			list := []string{}
			m.subset = &list
			return eachString(value, func(s string) { list = append(list, s) })
		})
	})
}

// entry reads an entry of a map.
func entry(b []byte) (key string, value []byte, err error) {
	err = fields(b, func(n field, content []byte, _ uint64) error {
		switch n {
		case 1:
			key = string(content)
		case 2:
			value = content
		}
		return nil
	})
	return key, value, err
}

// eachString visits the strings of a Value: one, or those of a list.
func eachString(b []byte, visit func(string)) error {
	return fields(b, func(n field, content []byte, _ uint64) error {
		switch n {
		case 3:
			visit(string(content))
		case 6: // ListValue
			return fields(content, func(n field, content []byte, _ uint64) error {
				if n != 1 {
					return nil
				}
				return eachString(content, visit)
			})
		}
		return nil
	})
}

// The following write messages.

func appendTag(b []byte, n field, kind uint64) []byte {
	return binary.AppendUvarint(b, uint64(n)<<3|kind)
}

func appendBytes(b []byte, n field, content []byte) []byte {
	return append(binary.AppendUvarint(appendTag(b, n, bytesType), uint64(len(content))), content...)
}

func appendString(b []byte, n field, s string) []byte {
	return append(binary.AppendUvarint(appendTag(b, n, bytesType), uint64(len(s))), s...)
}

func appendVarint(b []byte, n field, v uint64) []byte {
	return binary.AppendUvarint(appendTag(b, n, varintType), v)
}

// overwrite is HeaderAppendAction OVERWRITE_IF_EXISTS_OR_ADD: a client may have sent the header itself.
const overwrite = 2

// mutation is a HeaderMutation.
func mutation(set []header, remove []string) (b []byte) {
	for _, h := range set {
		value := appendBytes(appendString(nil, 1, h.key), 3, []byte(h.value))
		b = appendBytes(b, 1, appendVarint(appendBytes(nil, 1, value), 3, overwrite))
	}
	for _, key := range remove {
		b = appendString(b, 2, key)
	}
	return b
}

// answerTo is a ProcessingResponse with the answer to a message of a kind.
func answerTo(k kind, content []byte) []byte { return appendBytes(nil, field(k-1), content) }

// answerHeaders answers request or response headers.
func answerHeaders(k kind, set []header, remove []string, clearRoute bool) []byte {
	var common []byte
	if m := mutation(set, remove); len(m) > 0 {
		common = appendBytes(common, 2, m)
	}
	if clearRoute {
		common = appendVarint(common, 5, 1)
	}
	return answerTo(k, appendBytes(nil, 1, common))
}

// answerBody is one piece of a body, as it goes on.
func answerBody(k kind, piece []byte, end bool) []byte {
	streamed := appendBytes(nil, 1, piece)
	if end {
		streamed = appendVarint(streamed, 2, 1)
	}
	common := appendBytes(nil, 3, appendBytes(nil, 3, streamed))
	return answerTo(k, appendBytes(nil, 1, common))
}

// answerTrailers answers trailers.
func answerTrailers(k kind) []byte { return answerTo(k, nil) }

// withDestination adds the dynamic metadata with the endpoint.
func withDestination(answer []byte, endpoint string) []byte {
	value := appendString(nil, 3, endpoint)
	inner := appendBytes(nil, 1, appendBytes(appendString(nil, 1, destinationKey), 2, value))
	outer := appendBytes(nil, 1, appendBytes(appendString(nil, 1, metadataNamespace), 2, appendBytes(nil, 5, inner)))
	return appendBytes(answer, 8, outer)
}

// immediate answers the client in place of a server.
func immediate(status int, body string, set []header) []byte {
	b := appendBytes(nil, 1, appendVarint(nil, 1, uint64(status)))
	if m := mutation(set, nil); len(m) > 0 {
		b = appendBytes(b, 2, m)
	}
	return appendBytes(nil, 7, appendBytes(b, 3, []byte(body)))
}
