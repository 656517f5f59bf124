package command

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/tallystick-go/tallystick/examples/gateway/config"
	"github.com/tallystick-go/tallystick/examples/gateway/storage"
	"github.com/tallystick-go/tallystick/examples/operator"
	"github.com/tallystick-go/tallystick/journal"
	"github.com/tallystick-go/tallystick/journal/journalsqlite"
)

// ownJournal is what is done with a node's file while no gateway serves it.
type ownJournal struct {
	config, sqlite, actor, reason string
	heard                         int64
	asJSON                        bool
}

func (j *ownJournal) flags(set *flag.FlagSet) {
	set.StringVar(&j.config, "config", "", "the file of the node that this configuration `file` is of")
	set.StringVar(&j.sqlite, "sqlite", "", "this database `file`")
	set.StringVar(&j.actor, "actor", "", "`who` decides; recorded, required")
	set.StringVar(&j.reason, "reason", "", "`why`; recorded, required")
	set.BoolVar(&j.asJSON, "json", false, "print one JSON object")
}

// heardFlag is for both steps: the second is nothing without it.
func (j *ownJournal) heardFlag(set *flag.FlagSet, what string) {
	set.Int64Var(&j.heard, "heard", 0, "the `boot` of the node that the authority has heard, as `controlplane nodes` and the gateway's refusal say"+what)
}

// path is the file that is meant.
func (j *ownJournal) path(p operator.Process) (string, error) {
	if (j.config == "") == (j.sqlite == "") {
		return "", p.Misused("say which file: exactly one of -config FILE, -sqlite FILE")
	}
	if j.actor == "" || j.reason == "" {
		return "", p.Misused("say who decides and why: -actor and -reason")
	}
	if j.sqlite != "" {
		return filepath.Abs(j.sqlite)
	}
	c, err := config.LoadForAdmin(j.config)
	if err != nil {
		return "", err
	}
	if c.Profile != config.Node {
		return "", errors.New("the configuration is not of the profile node: only nodes have a journal")
	}
	return c.Storage.SQLite, nil
}

type journalStep struct {
	SetAside string `json:"set_aside,omitempty"` // where the file is now
	Heard    int64  `json:"heard,omitempty"`     // the next opening has a higher number
}

func (j *ownJournal) print(p operator.Process, done journalStep) error {
	if j.asJSON {
		text, err := json.Marshal(done)
		if err == nil {
			_, err = p.Out.Write(append(text, '\n'))
		}
		return err
	}
	if done.SetAside != "" {
		fmt.Fprintf(p.Out, "set aside: %s\n", done.SetAside)
		fmt.Fprintln(p.Out, "Keys and counters are in it too: `gateway keys import -from sqlite -source` carries the keys over, once the gateway has been started on the new file.")
	}
	if done.Heard > 0 {
		fmt.Fprintf(p.Out, "readmitted: the next opening is above %d\n", done.Heard)
		fmt.Fprintln(p.Out, "What earlier openings were granted is still out: `controlplane holds list` says how much, and `resolve` brings it back once it has expired.")
	} else {
		fmt.Fprintln(p.Out, "The authority will refuse the new journal and say which boot it has heard: see `gateway journal readmit`.")
	}
	return nil
}

// startAnew sets the file of a node aside, for a new one to take its place.
func startAnew(ctx context.Context, p operator.Process, args []string) error {
	set := p.Flags("journal start-anew", "")
	var j ownJournal
	j.flags(set)
	j.heardFlag(set, "; readmits the node too")
	if _, err := p.Parse(set, args, 0); err != nil {
		return err
	}
	path, err := j.path(p)
	if err != nil {
		return err
	}
	if err := journalsqlite.StartAnew(path, j.actor, j.reason); err != nil {
		return err
	}
	done := journalStep{Heard: j.heard}
	if found, _ := filepath.Glob(path + ".damaged-*[0-9]"); len(found) > 0 {
		done.SetAside = slices.Max(found)
	}
	if j.heard != 0 {
		if err := readmitted(ctx, path, &j); err != nil {
			return err
		}
	}
	return j.print(p, done)
}

// readmit lets a journal that was started anew speak for its node again.
func readmit(ctx context.Context, p operator.Process, args []string) error {
	set := p.Flags("journal readmit", "")
	var j ownJournal
	j.flags(set)
	j.heardFlag(set, "")
	if _, err := p.Parse(set, args, 0); err != nil {
		return err
	}
	path, err := j.path(p)
	if err != nil {
		return err
	}
	if j.heard < 1 {
		return p.Misused("say which boot the authority has heard: -heard, as `controlplane nodes` prints it")
	}
	if err := readmitted(ctx, path, &j); err != nil {
		return err
	}
	return j.print(p, journalStep{Heard: j.heard})
}

// readmitted owns the file for as long as it takes: no gateway may serve it.
func readmitted(ctx context.Context, path string, j *ownJournal) error {
	file, err := storage.Open(ctx, path, storage.Options{Serve: true, Node: true})
	if err != nil {
		return err
	}
	err = journal.Readmit(ctx, file.Journal, j.heard, j.actor, j.reason)
	return errors.Join(err, file.Close())
}
