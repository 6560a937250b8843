// Package timestamppb has the names of protobuf's package that parquet-go uses.
package timestamppb

import "time"

// Timestamp would be a time.
type Timestamp struct{}

// AsTime returns the zero time.
func (*Timestamp) AsTime() time.Time { return time.Time{} }
