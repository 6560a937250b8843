//go:build highs && cgo

package highs

// extern const char *Highs_version(void);
import "C"

// Version is the version of HiGHS that the program was built with; empty where
// [Available] is false.
func Version() string { return C.GoString(C.Highs_version()) }
