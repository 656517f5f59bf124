package policy

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tallystick-go/tallystick/quota"
)

// Decode reads one document, or a list of documents, as JSON, and returns them in
// canonical form. Unknown and repeated fields, null, empty lists, fractions and whatever
// [Document.Validate] refuses are errors; so is anything behind the value. Places are
// named as documents[0].spec and so on.
//
// Errors: *Error, for the first mistake.
func Decode(data []byte) ([]Document, error) {
	root := "documents[0]"
	if bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("[")) {
		root = "documents"
	}
	n, err := parse(root, data)
	if err != nil {
		var e *Error
		if errors.As(err, &e) && e.Path == "" {
			e.Path = "documents"
		}
		return nil, err
	}
	list := []node{n}
	if n.kind == listNode {
		list = n.list
	}
	if len(list) > MaxDocuments {
		return nil, refuse("documents", fmt.Sprintf("must be at most %d", MaxDocuments))
	}
	out := make([]Document, len(list))
	for i := range list {
		if out[i], err = decodeDocument(list[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// UnmarshalJSON reads one document as strictly as [Decode]. Errors: *Error.
func (d *Document) UnmarshalJSON(data []byte) error {
	n, err := parse("", data)
	if err != nil {
		return err
	}
	out, err := decodeDocument(n)
	if err == nil {
		*d = out
	}
	return err
}

func decodeDocument(n node) (Document, error) {
	var d Document
	// What the rest means depends on what it says it is.
	if err := n.says("apiVersion", APIVersion, AliasVersion); err != nil {
		return d, err
	}
	if err := n.says("kind", Resource); err != nil {
		return d, err
	}
	known := func(node) error { return nil }
	if err := n.object(map[string]func(node) error{
		"apiVersion": known,
		"kind":       known,
		"metadata": func(n node) error {
			return n.object(map[string]func(node) error{"name": str(&d.Name)})
		},
		"spec": d.decodeSpec,
	}); err != nil {
		return d, err
	}
	e, err := prepare(&d)
	if err != nil {
		return d, within(n.path, err)
	}
	return e.document, nil
}

// says checks that a member is one of some texts.
func (n node) says(name string, texts ...string) error {
	if n.kind != objectNode {
		return refuse(n.path, "must be an object")
	}
	i := slices.Index(n.names, name)
	if i < 0 || n.list[i].kind != textNode || !slices.Contains(texts, n.list[i].text) {
		return refuse(join(n.path, name), "must be "+texts[0])
	}
	return nil
}

func (d *Document) decodeSpec(n node) error {
	return n.object(map[string]func(node) error{
		"subject": func(n node) error {
			return n.object(map[string]func(node) error{"team": str(&d.Subject.Team), "user": str(&d.Subject.User)})
		},
		"rules": func(n node) error {
			return n.each(MaxRules, func(n node) error {
				var r Rule
				err := r.decode(n)
				d.Rules = append(d.Rules, r)
				return err
			})
		},
	})
}

func (r *Rule) decode(n node) error {
	return n.object(map[string]func(node) error{
		"name": str(&r.Name),
		"failurePolicy": func(n node) error {
			for _, p := range []FailurePolicy{FailOpen, FailClosed} {
				if n.kind == textNode && n.text == p.String() {
					r.FailurePolicy = p
					return nil
				}
			}
			return refuse(n.path, "must be FailOpen or FailClosed")
		},
		"budget":     func(n node) error { r.Budget = &Budget{}; return r.Budget.decode(n) },
		"rate":       func(n node) error { r.Rate = &Rate{}; return r.Rate.decode(n) },
		"tokenQuota": func(n node) error { r.TokenQuota = &TokenQuota{}; return r.TokenQuota.decode(n) },
		"modelAccess": func(n node) error {
			r.ModelAccess = &ModelAccess{}
			return n.object(map[string]func(node) error{"allow": func(n node) error {
				return n.each(MaxModels, func(n node) error {
					var model string
					err := str(&model)(n)
					r.ModelAccess.Allow = append(r.ModelAccess.Allow, model)
					return err
				})
			}})
		},
		"concurrency": func(n node) error {
			r.Concurrency = &Concurrency{}
			return n.required("permits", map[string]func(node) error{"permits": whole(&r.Concurrency.Permits)})
		},
		"routing": func(n node) error { r.Routing = &Routing{}; return r.Routing.decode(n) },
	})
}

func (b *Budget) decode(n node) error {
	fields := calendar(&b.Calendar)
	fields["limitMilliUSD"] = whole(&b.LimitMilliUSD)
	fields["hardCap"] = flag(&b.HardCap)
	fields["unlimited"] = flag(&b.Unlimited)
	fields["adminContact"] = str(&b.AdminContact)
	fields["lease"] = func(n node) error {
		b.Lease = &Lease{}
		return n.object(map[string]func(node) error{
			"grantMilliUSD": whole(&b.Lease.GrantMilliUSD),
			"renewInterval": duration(&b.Lease.RenewInterval),
		})
	}
	fields["tiers"] = func(n node) error {
		return n.each(MaxTiers, func(n node) error {
			var t Tier
			err := n.object(map[string]func(node) error{"thresholdPercent": whole(&t.Threshold)})
			b.Tiers = append(b.Tiers, t)
			return err
		})
	}
	if err := n.object(fields); err != nil {
		return err
	}
	switch limited := n.has("limitMilliUSD"); {
	case limited && b.Unlimited:
		return refuse(join(n.path, "limitMilliUSD"), "must not stand beside unlimited")
	case !limited && !b.Unlimited:
		return refuse(join(n.path, "limitMilliUSD"), "is missing; a budget without a limit says unlimited: true")
	}
	return nil
}

func (r *Rate) decode(n node) error {
	optional := func(to **int64) func(node) error {
		return func(n node) error { *to = new(int64); return whole(*to)(n) }
	}
	return n.object(map[string]func(node) error{
		"rpm": optional(&r.RPM), "tpm": optional(&r.TPM), "unlimited": flag(&r.Unlimited),
	})
}

func (q *TokenQuota) decode(n node) error {
	fields := calendar(&q.Calendar)
	fields["limitTokens"] = whole(&q.LimitTokens)
	return n.required("limitTokens", fields)
}

func (r *Routing) decode(n node) error {
	return n.object(map[string]func(node) error{
		"budget": str(&r.Budget),
		"budgetTiers": func(n node) error {
			return n.each(MaxTiers, func(n node) error {
				t := RoutingTier{Substitutions: map[string]string{}}
				err := n.object(map[string]func(node) error{
					"thresholdPercent": whole(&t.Threshold),
					"strict":           flag(&t.Strict),
					"substitutions":    t.decode,
				})
				r.Tiers = append(r.Tiers, t)
				return err
			})
		},
	})
}

// decode reads substitutions: an object whose fields are models.
func (t *RoutingTier) decode(n node) error {
	if n.kind == objectNode && len(n.names) > MaxModels {
		return refuse(n.path, fmt.Sprintf("must have at most %d entries", MaxModels))
	}
	fields := make(map[string]func(node) error, len(n.names))
	for _, from := range n.names {
		fields[from] = func(n node) error {
			var to string
			err := str(&to)(n)
			t.Substitutions[from] = to
			return err
		}
	}
	return n.object(fields)
}

// required is object for one that must have a certain member: a limit that was forgotten is
// not a limit of zero.
func (n node) required(name string, fields map[string]func(node) error) error {
	if err := n.object(fields); err != nil {
		return err
	}
	if !n.has(name) {
		return refuse(join(n.path, name), "is missing")
	}
	return nil
}

// calendar are the fields of a calendar. What they hold is checked with the document.
func calendar(c *quota.Calendar) map[string]func(node) error {
	return map[string]func(node) error{
		"period": func(n node) error {
			if n.kind != textNode || c.Period.UnmarshalText([]byte(n.text)) != nil {
				return refuse(n.path, "must be day, week or month")
			}
			return nil
		},
		"timezone": str(&c.Zone),
		"weekStart": func(n node) error {
			c.WeekStart = slices.Index(weekdays[:], n.text)
			if n.kind != textNode || c.WeekStart < 1 {
				return refuse(n.path, "must be a day from monday to sunday")
			}
			return nil
		},
		"resetHour": whole(&c.ResetHour),
		"monthDay": func(n node) error {
			err := whole(&c.MonthDay)(n)
			if err == nil && c.MonthDay == 0 {
				return refuse(n.path, "must be between 1 and 31")
			}
			return err
		},
	}
}

func duration(to *time.Duration) func(node) error {
	return func(n node) error {
		d, err := time.ParseDuration(n.text)
		if n.kind != textNode || err != nil || d < minRenew || d > maxRenew {
			return refuse(n.path, "must be between 1s and 24h, such as 30s or 5m")
		}
		*to = d
		return nil
	}
}
