// Package structpb has the names of protobuf's package that parquet-go uses.
package structpb

import "google.golang.org/protobuf/reflect/protoreflect"

type (
	// Struct would be an object.
	Struct struct {
		protoreflect.None
		Fields map[string]*Value
	}
	// ListValue would be a list.
	ListValue struct{ protoreflect.None }
	// Value would be a value.
	Value struct{ protoreflect.None }

	isValue interface{ kind() }

	// The kinds of values.
	Value_NullValue   struct{ isValue }
	Value_NumberValue struct {
		isValue
		NumberValue float64
	}
	Value_StringValue struct {
		isValue
		StringValue string
	}
	Value_BoolValue struct {
		isValue
		BoolValue bool
	}
	Value_StructValue struct {
		isValue
		StructValue *Struct
	}
	Value_ListValue struct {
		isValue
		ListValue *ListValue
	}
)

// GetFields returns nil.
func (*Struct) GetFields() map[string]*Value { return nil }

// GetValues returns nil.
func (*ListValue) GetValues() []*Value { return nil }

// GetKind returns nil.
func (*Value) GetKind() isValue { return nil }
