package operator

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tallystick-go/tallystick/examples/gateway/admin"
	"github.com/tallystick-go/tallystick/examples/gateway/config"
	"github.com/tallystick-go/tallystick/examples/gateway/storage"
	"github.com/tallystick-go/tallystick/governance"
)

// operation is one thing that an operator does over the admin API.
type operation struct {
	operands string // names of what follows the flags, "" for nothing
	flags    func(set *flag.FlagSet) *request
}

// request is what an operation asks, made of its flags.
type request struct {
	method string
	path   func(operand string) string
	query  func(q url.Values) error
	body   func(operand string) (any, error)
	print  func(o *output, answer json.RawMessage) error
}

type output struct {
	*tabwriter.Writer
}

// row writes one line of a table.
func (o *output) row(cells ...any) {
	for i, cell := range cells {
		if i > 0 {
			fmt.Fprint(o, "\t")
		}
		fmt.Fprint(o, cell)
	}
	fmt.Fprintln(o)
}

// groups are operations on one kind of thing, and single those that are alone.
var (
	groups = map[string]map[string]operation{
		"teams": teamCommands, "keys": keyCommands, "holds": holdCommands, "policies": policyCommands,
		"journal":     journalCommands,
		"suspensions": suspensionCommands, "fleet": fleetCommands, "events": eventCommands,
	}
	single = map[string]operation{
		"verify": verifyCommand, "prune": pruneCommand, "notes": notesCommand, "status": statusCommand, "nodes": nodesCommand,
		"system": systemCommand,
	}
)

// composed are operations that are more than one call of the admin API.
var composed = map[string]Command{
	"policies apply": policiesApply, "policies diff": policiesDiff, "policies delete": policiesDelete,
}

// group runs one of several operations.
func (p Process) group(ctx context.Context, name string, args []string, operations map[string]operation) error {
	names := make([]string, 0, len(operations))
	for n := range operations {
		names = append(names, n)
	}
	for _, more := range []map[string]Command{composed, p.Program.Own} {
		for full := range more {
			if operation, of := strings.CutPrefix(full, name+" "); of {
				names = append(names, operation)
			}
		}
	}
	slices.Sort(names)
	if len(args) == 0 {
		return p.Misused("%s what? %s", name, strings.Join(names, ", "))
	}
	switch args[0] {
	case "help", "-h", "-help", "--help":
		fmt.Fprintf(p.Out, "usage: %s %s %s [flags]\n-h after one of them lists its flags.\n", p.Program.Name, name, strings.Join(names, " | "))
		return nil
	}
	for _, more := range []map[string]Command{p.Program.Own, composed} {
		if run, is := more[name+" "+args[0]]; is {
			return run(ctx, p, args[1:])
		}
	}
	o, known := operations[args[0]]
	if !known {
		return p.Misused("there is no %q; %s knows %s", name+" "+args[0], name, strings.Join(names, ", "))
	}
	return p.operate(ctx, name+" "+args[0], args[1:], o)
}

func (p Process) operate(ctx context.Context, name string, args []string, o operation) error {
	set := p.Flags(name, o.operands)
	var over connection
	first, _, _ := strings.Cut(name, " ")
	over.flags(set, p.Program, !served[first])
	asJSON := set.Bool("json", false, "print what the API answered")
	r := o.flags(set)
	wanted := 0
	if o.operands != "" {
		wanted = 1
	}
	operands, err := p.Parse(set, args, wanted)
	if err != nil {
		return err
	}
	operand := ""
	if wanted == 1 {
		operand = operands[0]
	}
	var body any
	query := url.Values{}
	if r.query != nil {
		if err := r.query(query); err != nil {
			return p.Misused("%s", err)
		}
	}
	if r.body != nil {
		if body, err = r.body(operand); err != nil {
			return p.Misused("%s", err)
		}
	}
	client, closer, err := over.open(ctx, p)
	if err != nil {
		return err
	}
	var answer json.RawMessage
	err = client.Do(ctx, r.method, r.path(operand), query, body, &answer)
	if err = errors.Join(err, closer()); err != nil {
		return err
	}
	to := p.Out
	if *asJSON {
		if _, err := p.Out.Write(append(answer, '\n')); err != nil {
			return err
		}
		to = io.Discard // what it would print may still be a failure
	}
	out := &output{tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)}
	return errors.Join(r.print(out, answer), out.Flush())
}

// connection says over what an operator works.
type connection struct {
	config, admin, token, sqlite, postgres, schema string
	away                                           bool // only over an admin listener
}

// served are what only a gateway that serves can answer: what it shares with its peers.
var served = map[string]bool{"system": true, "suspensions": true, "fleet": true, "events": true}

func (c *connection) flags(set *flag.FlagSet, of *Program, direct bool) {
	set.StringVar(&c.config, "config", "", "the "+of.Name+"'s configuration `file`: use its admin listener")
	set.StringVar(&c.admin, "admin", "", "the `URL` of an admin listener")
	set.StringVar(&c.token, "token", "env:TALLYSTICK_ADMIN_TOKEN", "with -admin: the `reference` of its token, env:NAME or file:/path")
	if c.away = !direct; c.away {
		return
	}
	if of.Files {
		set.StringVar(&c.sqlite, "sqlite", "", "work on this database `file` directly")
	}
	set.StringVar(&c.postgres, "postgres", "", "work directly on the Postgres that this `reference` names, env:NAME or file:/path of a connection string")
	set.StringVar(&c.schema, "schema", "tallystick", "with -postgres: the `schema`")
}

// open says on the error output what it uses, since the two ways differ in what
// they need and in who else is told.
func (c *connection) open(ctx context.Context, p Process) (*admin.Client, func() error, error) {
	nothing := func() error { return nil }
	given := 0
	for _, s := range []string{c.config, c.admin, c.sqlite, c.postgres} {
		if s != "" {
			given++
		}
	}
	if given != 1 && c.away {
		return nil, nil, p.Misused("say where: exactly one of -config FILE and -admin URL")
	}
	if given != 1 {
		files := ""
		if p.Program.Files {
			files = "-sqlite FILE, "
		}
		return nil, nil, p.Misused("say where: exactly one of -config FILE, -admin URL, %s-postgres REFERENCE", files)
	}
	if c.sqlite != "" || c.postgres != "" {
		return c.direct(ctx, p)
	}
	if c.config != "" {
		place, err := p.Program.Place(c.config)
		if err != nil {
			return nil, nil, err
		}
		if place.Listen == "" {
			return nil, nil, fmt.Errorf("%s has no admin listener: use %s", c.config, place.Instead)
		}
		if strings.HasSuffix(place.Listen, ":0") {
			return nil, nil, fmt.Errorf("%s leaves the port to the system: use -admin with the address that serve printed", c.config)
		}
		fmt.Fprintf(p.Err, "over the admin API at %s\n", place.Listen)
		return &admin.Client{Base: "http://" + place.Listen, Token: place.Token}, nothing, nil
	}
	token, err := config.ReadSecret("-token", c.token, ".", p.Env)
	if err != nil {
		return nil, nil, err
	}
	fmt.Fprintf(p.Err, "over the admin API at %s\n", c.admin)
	return &admin.Client{Base: c.admin, Token: token.Reveal()}, nothing, nil
}

// direct serves the API to this process alone, on the database.
func (c *connection) direct(ctx context.Context, p Process) (*admin.Client, func() error, error) {
	db, err := c.database(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	governor, err := governance.New(db, &governance.Options{Beside: db.Journal != nil})
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	token := rand.Text()
	o := admin.Options{Keys: db.Keys, Governor: governor, Token: token, Journal: db.Journal, Logger: quiet}
	if c.postgres != "" { // a file has none: they are in files of their own
		o.Policies, o.Profile = db.Policies, p.Program.profile()
		if o.Authority, err = governance.NewAuthority(db, nil); err != nil {
			return nil, nil, errors.Join(err, governor.Close(ctx), db.Close())
		}
	}
	api := admin.Handler(o)
	closer := func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return errors.Join(governor.Close(ctx), db.Close())
	}
	return &admin.Client{Base: "http://localhost", Token: token, Transport: admin.Local(api)}, closer, nil
}

// database opens what is worked on directly.
func (c *connection) database(ctx context.Context, p Process) (*storage.Database, error) {
	if c.sqlite != "" {
		file, err := storage.Open(ctx, c.sqlite, storage.Options{})
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(p.Err, "directly on the file %s\n", c.sqlite)
		return file.Database(), nil
	}
	db, err := p.OpenPostgres(ctx, storage.Postgres{Schema: c.schema}, c.postgres)
	if err == nil {
		fmt.Fprintf(p.Err, "directly on the schema %s\n", c.schema)
	}
	return db, err
}

// OpenPostgres opens the Postgres that a reference on the command line names.
func (p Process) OpenPostgres(ctx context.Context, o storage.Postgres, reference string) (*storage.Database, error) {
	secret, err := config.ReadSecret("-postgres", reference, ".", p.Env)
	if err != nil {
		return nil, err
	}
	if o.DSN, err = config.ReadWrite(secret.Reveal()); err != nil {
		return nil, fmt.Errorf("-postgres: what it refers to %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	return storage.OpenPostgres(ctx, o)
}

// openTime bounds the opening of a database, its migration included.
const openTime = time.Minute

func at(path string) func(string) string { return func(string) string { return path } }

func under(prefix, suffix string) func(string) string {
	return func(operand string) string { return prefix + url.PathEscape(operand) + suffix }
}

// get is the request of what only reads.
func get(path func(string) string, print func(*output, json.RawMessage) error) *request {
	return &request{method: http.MethodGet, path: path, print: print}
}
