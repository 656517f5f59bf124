package escrowhttp

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"strings"

	"github.com/tallystick-go/tallystick/escrow"
)

const (
	// Path is where a Handler is to be reached, and where a Client asks.
	Path = "/escrow/v1/heartbeat"
	// ContentType is that of heartbeats, answers and failures. It carries the version,
	// so that a peer of another one is known before its body is read.
	ContentType = "application/vnd.tallystick." + escrow.Protocol + "+json"

	maxFailureBytes = 16 << 10
)

// spoken reports whether a Content-Type says escrow-v1.
func spoken(header string) bool {
	media, parameters, err := mime.ParseMediaType(header)
	if err != nil || media != ContentType {
		return false
	}
	for name, value := range parameters {
		if name != "charset" || !strings.EqualFold(value, "utf-8") {
			return false
		}
	}
	return true
}

// decode reads a message that came. What is of another version of the protocol is refused
// as that, wherever it says so.
//
// Errors: *escrow.Error, escrow.ErrIncompatible.
func decode(data []byte, into json.Unmarshaler) error {
	err := json.Unmarshal(data, into)
	var wrong *escrow.Error
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &wrong):
		return &escrow.Error{Why: "must be one JSON object"}
	case wrong.Field == "protocol":
		return fmt.Errorf("%w: %s", escrow.ErrIncompatible, wrong)
	}
	return wrong
}
