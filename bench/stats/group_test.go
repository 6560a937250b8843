package stats

import (
	"slices"
	"testing"
)

func TestGroupBy(t *testing.T) {
	keys, groups := GroupBy([]int{5, 2, 7, 4, 1}, func(x *int) bool { return *x%2 == 0 })
	if !slices.Equal(keys, []bool{false, true}) {
		t.Error(keys)
	}
	if !slices.Equal(groups[false], []int{5, 7, 1}) || !slices.Equal(groups[true], []int{2, 4}) {
		t.Error(groups)
	}
}
