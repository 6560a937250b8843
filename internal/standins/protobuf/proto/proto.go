// Package proto has the names of protobuf's package that parquet-go uses.
package proto

import (
	"errors"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Message would be a message.
type Message = protoreflect.ProtoMessage

// Marshal returns an error.
func Marshal(Message) ([]byte, error) { return nil, errors.New("protobuf is not supported") }

// Size returns 0.
func Size(Message) int { return 0 }
