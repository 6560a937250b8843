package place

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// What is in a list but not in another one, sorted or not.
func TestWithout(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		numbers := rapid.SliceOfNDistinct(rapid.Int32Range(0, 12), 0, 8, rapid.ID)
		list, other := numbers.Draw(t, "list"), numbers.Draw(t, "other")
		if rapid.Bool().Draw(t, "sorted") {
			slices.Sort(list)
			slices.Sort(other)
		}
		want := slices.DeleteFunc(slices.Clone(list), func(k int32) bool { return slices.Contains(other, k) })
		if got := without(list, other); !slices.Equal(got, want) {
			t.Fatalf("%v without %v is %v, expected %v", list, other, got, want)
		}
	})
}
