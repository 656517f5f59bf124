package leasepg_test

import (
	"os"
	"testing"

	"github.com/tallystick-go/tallystick/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }
