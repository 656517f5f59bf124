package journal_test

import (
	"testing"

	"github.com/tallystick-go/tallystick/journal"
	"github.com/tallystick-go/tallystick/journal/journaltest"
)

func TestMemory(t *testing.T) {
	journaltest.Run(t, journaltest.Harness{
		New:    func(testing.TB) journal.Store { return journaltest.NewMemory() },
		Reopen: func(_ testing.TB, s journal.Store) journal.Store { return s },
	})
}
