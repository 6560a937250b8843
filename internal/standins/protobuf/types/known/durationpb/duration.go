// Package durationpb has the names of protobuf's package that parquet-go uses.
package durationpb

import "time"

// Duration would be a duration.
type Duration struct{}

// AsDuration returns 0.
func (*Duration) AsDuration() time.Duration { return 0 }
