// Package anypb has the names of protobuf's package that parquet-go uses.
package anypb

import (
	"errors"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Any would be any message.
type Any struct{ protoreflect.None }

// GetTypeUrl returns "".
func (*Any) GetTypeUrl() string { return "" }

// UnmarshalNew returns an error.
func (*Any) UnmarshalNew() (proto.Message, error) {
	return nil, errors.New("protobuf is not supported")
}
