// Package protoreflect has the names of protobuf's package that parquet-go uses.
package protoreflect

// Name is the name of a field.
type Name string

// Kind is the type of a field.
type Kind int8

// MessageKind is the type of a message.
const MessageKind Kind = 11

type (
	// ProtoMessage would be a message.
	ProtoMessage interface{ ProtoReflect() Message }
	// Message would be a message with its fields.
	Message interface {
		Descriptor() MessageDescriptor
		Interface() ProtoMessage
		Has(FieldDescriptor) bool
		Get(FieldDescriptor) Value
	}
	// MessageDescriptor would describe a message.
	MessageDescriptor interface{ Fields() FieldDescriptors }
	// FieldDescriptors would describe fields.
	FieldDescriptors interface{ ByName(Name) FieldDescriptor }
	// FieldDescriptor would describe a field.
	FieldDescriptor interface{ Kind() Kind }
	// List would be a list of values.
	List interface {
		Len() int
		Get(int) Value
	}
	// Map would be a map of values.
	Map interface {
		Len() int
		Range(func(MapKey, Value) bool)
	}
)

// Value would be the value of a field.
type Value struct{}

// IsValid returns false.
func (Value) IsValid() bool { return false }

// Interface returns nil.
func (Value) Interface() any { return nil }

// Message returns nil.
func (Value) Message() Message { return nil }

// MapKey would be the key of a map.
type MapKey struct{}

// Interface returns nil.
func (MapKey) Interface() any { return nil }

// None implements ProtoMessage.
type None struct{}

// ProtoReflect returns nil.
func (*None) ProtoReflect() Message { return nil }
