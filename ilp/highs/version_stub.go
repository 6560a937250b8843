//go:build !highs || !cgo

package highs

// Version is the version of HiGHS that the program was built with; empty where
// [Available] is false.
func Version() string { return "" }
