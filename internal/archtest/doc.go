// Package archtest holds the repository to its layout: who may import whom, what may not
// ship, how folders are named, how long a file may grow. It is tests only.
//
// The tests read every Go file themselves. That makes go test's cache depend on those files, so a change
// anywhere runs the rules again.
package archtest
