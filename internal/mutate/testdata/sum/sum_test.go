package sum

import (
	"testing"

	"pgregory.net/rapid"
)

func TestPropertyOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.IntRange(0, 9).Draw(t, "a"), rapid.IntRange(0, 9).Draw(t, "b")
		if Of([]int{a, b}) != b+a {
			t.Fatal("the sum is wrong")
		}
	})
}

func TestWrong(t *testing.T) { t.Fatal("always") }
