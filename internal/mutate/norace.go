//go:build !race

package mutate

const raced = false
