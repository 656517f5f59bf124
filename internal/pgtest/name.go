package pgtest

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
)

func schemaName() string {
	b := make([]byte, 6)
	_, _ = rand.Read(b)
	return "t_" + hex.EncodeToString(b)
}

func cut(kv string) (k, v string, ok bool) {
	k, v, ok = strings.Cut(kv, "=")
	return strings.TrimSpace(k), strings.TrimSpace(v), ok && strings.TrimSpace(k) != ""
}
