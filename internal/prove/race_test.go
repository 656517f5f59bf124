//go:build race

package prove

const raced = true
