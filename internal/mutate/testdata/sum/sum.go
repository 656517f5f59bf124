// Package sum is there to be mutated.
package sum

// Of adds up a list.
func Of(list []int) int {
	sum := 0
	for i := 0; i < len(list); i++ {
		sum += list[i]
	}
	return sum
}
