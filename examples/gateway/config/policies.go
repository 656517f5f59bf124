package config

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/governance/policy/policyyaml"
)

// PolicyError says in which file which document cannot be used.
type PolicyError struct {
	File string
	Err  error
}

func (e *PolicyError) Error() string { return "config: " + e.File + ": " + e.Err.Error() }
func (e *PolicyError) Unwrap() error { return e.Err }

// Is makes errors.Is(err, ErrConfig) hold.
func (e *PolicyError) Is(target error) bool { return target == ErrConfig }

// ReadPolicies reads the documents of some files, YAML or JSON, which together are one
// set.
//
// Errors: *PolicyError.
func ReadPolicies(paths []string) ([]policy.Document, error) {
	all := []policy.Document{}
	from := map[string]string{}
	for _, path := range paths {
		data, err := readUpTo(path, policy.MaxInputBytes)
		if err != nil {
			return nil, &PolicyError{path, err}
		}
		documents, err := policyyaml.Decode(data)
		if err != nil {
			return nil, &PolicyError{path, err}
		}
		for _, d := range documents {
			if other, is := from[d.Name]; is {
				return nil, &PolicyError{path, fmt.Errorf("the policy %s stands in %s too", d.Name, other)}
			}
			from[d.Name] = path
		}
		all = append(all, documents...)
	}
	if _, err := policy.NewSet(all); err != nil {
		return nil, &PolicyError{"all files together", err}
	}
	return all, nil
}

func readUpTo(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, errors.New(reason(err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, errors.New(reason(err))
	}
	if int64(len(data)) > most {
		return nil, fmt.Errorf("is larger than %d bytes", most)
	}
	return data, nil
}
