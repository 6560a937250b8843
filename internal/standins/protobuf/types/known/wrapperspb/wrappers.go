// Package wrapperspb has the names of protobuf's package that parquet-go uses.
package wrapperspb

// Of would be a value.
type Of[T any] struct{}

// GetValue returns the zero value.
func (*Of[T]) GetValue() (v T) { return v }

// The types of values.
type (
	BoolValue   struct{ Of[bool] }
	Int32Value  struct{ Of[int32] }
	Int64Value  struct{ Of[int64] }
	UInt32Value struct{ Of[uint32] }
	UInt64Value struct{ Of[uint64] }
	FloatValue  struct{ Of[float32] }
	DoubleValue struct{ Of[float64] }
	StringValue struct{ Of[string] }
	BytesValue  struct{ Of[[]byte] }
)
