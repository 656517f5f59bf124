package sum

var _ = missing // compiles only where it is left out
