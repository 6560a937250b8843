//go:build highs && cgo

package highs

/*
#cgo pkg-config: highs
#include <stdint.h>
#include <stdlib.h>
#include <util/HighsInt.h>

// Prototypes of our own: below HiGHS 1.12 its C header defines its constants,
// which github.com/lanl/highs has done already.
extern HighsInt Highs_setSolution(void *highs, const double *col_value, const double *row_value,
                                  const double *col_dual, const double *row_dual);
extern HighsInt Highs_getNumCol(const void *highs);
extern HighsInt Highs_getNumRow(const void *highs);
extern HighsInt Highs_getSolution(const void *highs, double *col_value, double *col_dual,
                                  double *row_value, double *row_dual);
extern HighsInt Highs_getIntInfoValue(const void *highs, const char *info, HighsInt *value);
extern HighsInt Highs_getInt64InfoValue(const void *highs, const char *info, int64_t *value);
extern HighsInt Highs_getDoubleInfoValue(const void *highs, const char *info, double *value);

extern const char *Highs_version(void);

// Callbacks came with HiGHS 1.6; weak, they are null before.
typedef void (*callback)(int type, const char *message, const void *out, int *interrupt, void *data);
extern HighsInt Highs_setCallback(void *highs, callback f, void *data) __attribute__((weak));
extern HighsInt Highs_startCallback(void *highs, const int type) __attribute__((weak));
extern const HighsInt kHighsCallbackMipInterrupt __attribute__((weak));

// The first field of what a callback gives back is whether to stop.
static void stop_if_told(int type, const char *message, const void *out, int *interrupt, void *told) {
	if (interrupt && __atomic_load_n((int *)told, __ATOMIC_RELAXED)) *interrupt = 1;
}

static void listen(void *highs, int *told) {
	if (!Highs_setCallback || !Highs_startCallback || !&kHighsCallbackMipInterrupt) return;
	Highs_setCallback(highs, stop_if_told, told);
	Highs_startCallback(highs, kHighsCallbackMipInterrupt);
}

static void tell(int *told) { __atomic_store_n(told, 1, __ATOMIC_RELAXED); }
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"unsafe"

	lanl "github.com/lanl/highs"
)

// Version is the version of HiGHS that the program was built with; empty where
// [Available] is false.
func Version() string { return C.GoString(C.Highs_version()) }

// native is a HiGHS model, for what github.com/lanl/highs does not offer. Who
// uses it keeps the lanl.RawModel alive, whose finalizer frees it.
type native struct{ highs unsafe.Pointer }

// nativeOf takes HiGHS's own pointer out of a model.
func nativeOf(raw *lanl.RawModel) (native, error) {
	v := reflect.ValueOf(raw).Elem().FieldByName("obj")
	if v.Kind() != reflect.UnsafePointer || v.UnsafePointer() == nil {
		return native{}, errors.New("github.com/lanl/highs holds its model in another way than v1.0.0 does")
	}
	return native{v.UnsafePointer()}, nil
}

// setSolution gives HiGHS the values of all columns to start from.
func (n native) setSolution(x []float64) error {
	if len(x) != int(C.Highs_getNumCol(n.highs)) {
		return fmt.Errorf("%d values to start from, the model has %d columns", len(x), int(C.Highs_getNumCol(n.highs)))
	}
	if status := C.Highs_setSolution(n.highs, (*C.double)(&x[0]), nil, nil, nil); status != 0 {
		return fmt.Errorf("Highs_setSolution returned %d", int(status))
	}
	return nil
}

// solution returns the values of all columns, nil if HiGHS has found none. It
// also works where a limit ended the search, when lanl.RawModel.Solve returns
// none.
func (n native) solution() ([]float64, error) {
	const feasible = 2
	var status C.HighsInt
	if err := n.info("primal_solution_status", func(name *C.char) C.HighsInt {
		return C.Highs_getIntInfoValue(n.highs, name, &status)
	}); err != nil || status != feasible {
		return nil, err
	}
	cols, rows := int(C.Highs_getNumCol(n.highs)), int(C.Highs_getNumRow(n.highs))
	x, dual := make([]float64, cols), make([]float64, cols)
	row, rowDual := make([]float64, rows), make([]float64, rows)
	if C.Highs_getSolution(n.highs, (*C.double)(&x[0]), (*C.double)(&dual[0]), (*C.double)(&row[0]), (*C.double)(&rowDual[0])) != 0 {
		return nil, errors.New("Highs_getSolution failed")
	}
	return x, nil
}

// float is a number that HiGHS knows about the last solve.
func (n native) float(name string) (float64, error) {
	var v C.double
	err := n.info(name, func(name *C.char) C.HighsInt { return C.Highs_getDoubleInfoValue(n.highs, name, &v) })
	return float64(v), err
}

// nodes is the number of branch-and-bound nodes of the last solve.
func (n native) nodes() (int64, error) {
	var v C.int64_t
	err := n.info("mip_node_count", func(name *C.char) C.HighsInt { return C.Highs_getInt64InfoValue(n.highs, name, &v) })
	return max(0, int64(v)), err
}

func (n native) info(name string, get func(*C.char) C.HighsInt) error {
	s := C.CString(name)
	defer C.free(unsafe.Pointer(s))
	if status := get(s); status != 0 {
		return fmt.Errorf("HiGHS does not say its %s (status %d)", name, int(status))
	}
	return nil
}

// stopWith makes HiGHS stop when ctx ends, until release is called. HiGHS
// before 1.6 does not.
func (n native) stopWith(ctx context.Context) (release func()) {
	told := (*C.int)(C.calloc(1, C.sizeof_int))
	C.listen(n.highs, told)
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		C.tell(told)
		close(done)
	})
	return func() {
		if !stop() {
			<-done
		}
		C.free(unsafe.Pointer(told))
	}
}
