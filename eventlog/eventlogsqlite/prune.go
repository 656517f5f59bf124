package eventlogsqlite

import (
	"context"
	"errors"

	"github.com/tallystick-go/tallystick/eventlog"
)

// pruneStep is how many events go in one transaction.
const pruneStep = 1000

// Prune implements eventlog.Store.
func (s *Store) Prune(ctx context.Context, p eventlog.Prune) (out eventlog.Pruned, err error) {
	if p.Before.IsZero() || p.Limit < 0 {
		return out, &eventlog.FieldError{Field: "before", Why: "must be given, and limit not negative"}
	}
	for {
		step := pruneStep
		if p.Limit > 0 {
			step = min(step, p.Limit-int(out.Events))
		}
		var gone int
		err := s.write(ctx, func(t tx) (err error) {
			gone, err = prune(t, p.Before.UnixMicro(), step, &out)
			return err
		})
		if err != nil {
			return out, err
		}
		out.Events += int64(gone)
		if gone < step || p.Limit > 0 && out.Events >= int64(p.Limit) {
			return out, nil
		}
	}
}

func prune(t tx, before int64, most int, out *eventlog.Pruned) (gone int, err error) {
	v, err := view(t)
	if err != nil {
		return 0, err
	}
	for _, forget := range []string{keepGenerationOld, forgetClosed} {
		if _, err := t.exec(forget, before); err != nil {
			return 0, err
		}
	}
	through, slowest := int64(1<<62), ""
	err = t.each(listConsumers, func(scan func(...any) error) error {
		var consumer, cursor string
		var bound int64
		if err := scan(&consumer, new(string), new(string), new(int64), new(bool), &bound, new(int64), &cursor); err != nil {
			return err
		}
		if _, is := boundOf(bound); is {
			return nil
		}
		at, err := eventlog.ParseCursor(cursor)
		if at.Through() < through {
			through, slowest = at.Through(), consumer
		}
		return err
	}, "")
	if err != nil {
		return 0, err
	}
	out.Through, out.HeldBy = v.Pruned, ""
	last := map[string]int64{}
	seen := 0
	err = t.each(selectOld, func(scan func(...any) error) error {
		var position, version, at int64
		var stream string
		if err := scan(&position, &stream, &version, &at); err != nil {
			return err
		}
		seen++
		if at < before && gone == seen-1 { // none behind the first that stays
			gone++
			out.Through, last[stream] = position, version
		}
		return nil
	}, through, most)
	if err != nil {
		return 0, err
	}
	if gone == seen && seen < most {
		next := before
		if err := one(t, selectNext, []any{through}, &next); err != nil && !errors.Is(err, errNone) {
			return 0, err
		}
		if next < before {
			out.HeldBy = slowest
		}
	}
	if gone == 0 {
		return 0, nil
	}
	for stream, version := range last {
		if _, err := t.exec(keepVersion, stream, version); err != nil {
			return 0, err
		}
	}
	if _, err := t.exec(deleteOld, out.Through); err != nil {
		return 0, err
	}
	_, err = t.exec(markOld, out.Through)
	return gone, err
}
