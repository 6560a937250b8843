// Package wkb has the names of go-geom's package that parquet-go uses.
package wkb

import (
	"encoding/binary"
	"errors"

	"github.com/twpayne/go-geom"
)

// NDR is the little-endian order.
var NDR binary.ByteOrder = binary.LittleEndian

var errGeometry = errors.New("geometries are not supported")

// Marshal returns an error.
func Marshal(geom.T, binary.ByteOrder) ([]byte, error) { return nil, errGeometry }

// Unmarshal returns an error.
func Unmarshal([]byte) (geom.T, error) { return nil, errGeometry }
