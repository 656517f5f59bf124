package config

import "errors"

// CheckRegistered checks an upstream that says of itself what it is, over the admin API or in a file that is
// read while the gateway runs. It fills in URL; the credential is the caller's to find.
//
// Errors: *FieldError, joined when there are several; their paths are names of fields.
func CheckRegistered(u *Upstream) error {
	k := &checker{}
	k.name("name", u.Name)
	k.upstream("", u)
	if len(u.Models) == 0 || len(u.Models) > maxModels {
		k.fault("models", "must name between 1 and %d models", maxModels)
	}
	if len(u.Guardrails) > 0 {
		k.fault("guardrails", "belong to upstreams of the configuration")
	}
	for _, err := range k.faults {
		var f *FieldError
		if errors.As(err, &f) && len(f.Path) > 0 && f.Path[0] == '.' {
			f.Path = f.Path[1:]
		}
	}
	return errors.Join(k.faults...)
}
