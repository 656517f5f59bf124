package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/tallystick-go/tallystick/examples/gateway/config"
	"github.com/tallystick-go/tallystick/examples/gateway/storage"
	"github.com/tallystick-go/tallystick/examples/operator"
	"github.com/tallystick-go/tallystick/governance"
	"github.com/tallystick-go/tallystick/keys"
	"github.com/tallystick-go/tallystick/keys/keysimport"
)

// imports are the flags of `keys import`.
type imports struct {
	from string

	source                            string // sqlite
	keys, teams, budgets, deleted     string // litellm
	tokens, users                     string // new-api
	team                              string
	quotaPerUSD                       int64
	config, sqlite, postgres, schema  string // into
	dryRun, allowWider, fresh, asJSON bool
}

func (i *imports) flags(set *flag.FlagSet) {
	set.StringVar(&i.from, "from", "", "the `system`: sqlite, litellm or new-api")
	set.StringVar(&i.source, "source", "", "with -from sqlite: the database `file` of a gateway that was stopped for good")
	set.StringVar(&i.keys, "keys", "", "with -from litellm: the `file` with LiteLLM_VerificationToken, CSV with a header or JSON lines")
	set.StringVar(&i.teams, "teams", "", "with -from litellm: the `file` with LiteLLM_TeamTable")
	set.StringVar(&i.budgets, "budgets", "", "with -from litellm: the `file` with LiteLLM_BudgetTable")
	set.StringVar(&i.deleted, "deleted", "", "with -from litellm: the `file` with LiteLLM_DeletedVerificationToken")
	set.StringVar(&i.tokens, "tokens", "", "with -from new-api: the `file` with the table tokens, CSV with a header or JSON lines")
	set.StringVar(&i.users, "users", "", "with -from new-api: the `file` with the table users")
	set.StringVar(&i.team, "team", "", "the `team` of keys that have none there; litellm or newapi when left out")
	set.Int64Var(&i.quotaPerUSD, "quota-per-usd", 0, "with -from new-api: how much `quota` is one dollar; 500000 when left out")
	set.StringVar(&i.config, "config", "", "into the database of this configuration `file`")
	set.StringVar(&i.sqlite, "sqlite", "", "into this database `file`")
	set.StringVar(&i.postgres, "postgres", "", "into the Postgres that this `reference` names, env:NAME or file:/path of a connection string")
	set.StringVar(&i.schema, "schema", "tallystick", "with -postgres: the `schema`, which is made where it is missing")
	set.BoolVar(&i.dryRun, "dry-run", false, "report what would be imported, and do nothing")
	set.BoolVar(&i.allowWider, "allow-wider", false, "import although the report says that something gets wider")
	set.BoolVar(&i.fresh, "fresh-counters", false, "with -from sqlite: import although windows that are still open have counted something, which begins at zero")
	set.BoolVar(&i.asJSON, "json", false, "print the report as JSON")
}

// misuse says what does not fit together.
func (i *imports) misuse() string {
	into := 0
	for _, s := range []string{i.config, i.sqlite, i.postgres} {
		if s != "" {
			into++
		}
	}
	needs := map[string]string{"sqlite": i.source, "litellm": i.keys, "new-api": i.tokens}
	names := map[string]string{"sqlite": "-source", "litellm": "-keys", "new-api": "-tokens"}
	given, known := needs[i.from]
	switch {
	case !known:
		return "-from must be sqlite, litellm or new-api"
	case given == "":
		return "-from " + i.from + " needs " + names[i.from] + " FILE"
	case into > 1 || into == 0 && !i.dryRun:
		return "say where to: exactly one of -config FILE, -sqlite FILE, -postgres REFERENCE"
	case i.dryRun && i.from == "sqlite":
		return "-dry-run is for exports of other systems: a store of ours is carried as it is"
	}
	return ""
}

func keysImport(ctx context.Context, p operator.Process, args []string) (err error) {
	set := p.Flags("keys import", "")
	var i imports
	i.flags(set)
	if _, err := p.Parse(set, args, 0); err != nil {
		return err
	}
	if why := i.misuse(); why != "" {
		return p.Misused("%s", why)
	}
	var plan keysimport.Plan
	if i.from != "sqlite" {
		if plan, err = i.plan(); err != nil {
			return err
		}
		if i.dryRun {
			return i.print(p.Out, plan.Report)
		}
	}
	into, format, closer, err := i.open(ctx, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closer()) }()
	if i.from == "sqlite" {
		return i.copy(ctx, p, into)
	}
	failed := plan.Import(ctx, into, &keysimport.Options{AllowWider: i.allowWider})
	if errors.Is(failed, keysimport.ErrWider) {
		failed = fmt.Errorf("%w (-allow-wider)", failed)
	}
	if err := errors.Join(i.print(p.Out, plan.Report), failed); err != nil {
		return err
	}
	if format == nil || !slices.Contains(format.Foreign, "sk-") {
		fmt.Fprintln(p.Err, `clients of the other system present tokens that begin with sk-: the gateway must accept them, with "keys: {foreign: [sk-]}"`)
	}
	return nil
}

// plan reads the exports.
func (i *imports) plan() (plan keysimport.Plan, err error) {
	var opened []io.Closer
	defer func() {
		for _, f := range opened {
			err = errors.Join(err, f.Close())
		}
	}()
	open := func(path string) io.Reader {
		if path == "" || err != nil {
			return nil
		}
		f, failed := os.Open(path)
		if failed != nil {
			err = failed
			return nil
		}
		opened = append(opened, f)
		return f
	}
	if i.from == "litellm" {
		l := keysimport.LiteLLM{Keys: open(i.keys), Teams: open(i.teams), Budgets: open(i.budgets), DeletedKeys: open(i.deleted), Team: i.team}
		if err != nil {
			return plan, err
		}
		return l.Read()
	}
	n := keysimport.NewAPI{Tokens: open(i.tokens), Users: open(i.users), Team: i.team, QuotaPerUSD: i.quotaPerUSD}
	if err != nil {
		return plan, err
	}
	return n.Read()
}

func (i *imports) print(w io.Writer, r *keysimport.Report) error {
	if i.asJSON {
		return r.WriteJSON(w)
	}
	return r.WriteTable(w)
}

// open opens what is imported into. The format is nil where it is not known.
func (i *imports) open(ctx context.Context, p operator.Process) (keys.Importer, *keys.Format, func() error, error) {
	db, format, err := i.database(ctx, p)
	if err != nil {
		return nil, nil, nil, err
	}
	return db.Keys, format, db.Close, nil
}

func (i *imports) database(ctx context.Context, p operator.Process) (*storage.Database, *keys.Format, error) {
	if i.postgres != "" {
		db, err := p.OpenPostgres(ctx, storage.Postgres{Schema: i.schema, Migrate: true}, i.postgres)
		return db, nil, err
	}
	path, format := i.sqlite, (*keys.Format)(nil)
	if i.config != "" {
		c, err := config.LoadForAdmin(i.config)
		if err != nil {
			return nil, nil, err
		}
		f := c.Keys.Format()
		if c.Profile == config.Shared {
			o, err := storage.PostgresOf(c.Storage.Postgres, c.Timeouts.Connect.Duration, c.Timeouts.Storage.Duration)
			if err != nil {
				return nil, nil, err
			}
			o.Migrate, o.Format = true, f
			db, err := storage.OpenPostgres(ctx, o)
			return db, &f, err
		}
		path, format = c.Storage.SQLite, &f
	}
	file, err := storage.Open(ctx, path, storage.Options{})
	if err != nil {
		return nil, nil, err
	}
	return file.Database(), format, nil
}

// copy carries a store of ours. Nothing serves the file meanwhile, and nothing
// writes to it.
func (i *imports) copy(ctx context.Context, p operator.Process, into keys.Importer) (err error) {
	source, err := storage.Open(ctx, i.source, storage.Options{Alone: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	if !i.fresh {
		if err := windowsAreOver(ctx, source); err != nil {
			return err
		}
	}
	done, err := keysimport.Copy(ctx, into, source.Keys)
	if err != nil {
		return err
	}
	report := &keysimport.Report{Source: "sqlite", Effects: map[string]int{}, Findings: []keysimport.Finding{}, Imported: &done}
	report.Carried = keys.Count{
		Teams: done.Added.Teams + done.Same.Teams, Keys: done.Added.Keys + done.Same.Keys,
		Secrets: done.Added.Secrets + done.Same.Secrets, Declarations: done.Added.Declarations + done.Same.Declarations,
	}
	return i.print(p.Out, report)
}

// windowsAreOver refuses a file whose counters still bind: they are not carried, and
// every limit that they count for would begin anew. Rates do so whenever: a bucket holds no
// window, and what it has admitted drains while the deployment moves.
func windowsAreOver(ctx context.Context, source *storage.File) error {
	open, err := source.Store.Permits(ctx, governance.PermitQuery{Limit: 1, States: []governance.State{governance.StateOpen}})
	if err != nil {
		return err
	}
	if len(open) > 0 {
		return errors.New("permits are open: let their calls end, or resolve them with `gateway holds`, or say -fresh-counters to leave the counters behind")
	}
	now, err := source.Store.View(ctx, &governance.Plan{})
	if err != nil {
		return err
	}
	for after := (governance.AccountKey{}); ; {
		cells, err := source.Store.Accounts(ctx, governance.AccountQuery{After: after, Limit: 500})
		if err != nil {
			return err
		}
		for _, c := range cells {
			a := c.Account
			if c.End > now.Now && (a.Frozen || a.Consumed|a.Uncertain|a.Reserved|a.Granted != 0) {
				return errors.New("windows that are still open have counted something: wait until they end, or say -fresh-counters to leave the counters behind")
			}
			after = c.Key
		}
		if len(cells) == 0 {
			return nil
		}
	}
}

// keysMint makes a token for a declaration.
func keysMint(_ context.Context, p operator.Process, args []string) error {
	set := p.Flags("keys mint", "")
	if _, err := p.Parse(set, args, 0); err != nil {
		return err
	}
	token, err := keys.Mint(nil)
	if err != nil {
		return err
	}
	fmt.Fprintln(p.Out, token.Reveal())
	return nil
}
