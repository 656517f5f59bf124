package fleet_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/escrow/escrowhttp"
	"github.com/tallystick-go/tallystick/examples/controlplane/command"
	"github.com/tallystick-go/tallystick/examples/gateway/admin"
	gatewaycommand "github.com/tallystick-go/tallystick/examples/gateway/command"
	"github.com/tallystick-go/tallystick/examples/gateway/provider"
	"github.com/tallystick-go/tallystick/examples/gateway/report"
	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/governance/policy/policyyaml"
	"github.com/tallystick-go/tallystick/internal/pgtest"
	"github.com/tallystick-go/tallystick/journal"
	"github.com/tallystick-go/tallystick/journal/journaltest"
)

// asChild makes this test binary be a control plane, or a gateway.
const asChild = "CONTROLPLANE_FLEET_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(asChild) {
	case "plane":
		os.Exit(command.Run(command.Process{Args: os.Args[1:], Out: os.Stdout, Err: os.Stderr, Env: os.LookupEnv, Clock: clockOf(os.Getenv(clockFile))}))
	case "gateway":
		os.Exit(gatewaycommand.Run(gatewaycommand.Process{Args: os.Args[1:], Out: os.Stdout, Err: os.Stderr, Env: os.LookupEnv, Clock: clockOf(os.Getenv(clockFile))}))
	}
	os.Exit(pgtest.Run(m))
}

const (
	adminToken = "admin-secret"
	patience   = 60 * time.Second
	tick       = 5 * time.Millisecond
	probe      = "probe" // the node that only looks
)

// fleet is control planes on one schema, and the relay that is their address.
type fleet struct {
	*testing.T
	dsn    string
	config string
	env    []string
	relay  *relay
	planes []*plane
	clock  string       // the file of the planes' calendar, or none
	spent  atomic.Int64 // microUSD that providers were paid, by all nodes
	beats  int64        // of the probe

	provider    *provider.Provider // behind gateways
	providerURL string
	brokenURL   string       // of one that answers 500 to everything
	calls       atomic.Int64 // that reached it
	token       string       // of the key app
}

func tokenOf(node string) string { return "the-secret-token-of-" + node }

// newFleet starts so many control planes, whose grants last that long.
func newFleet(t *testing.T, dsn, schema string, planes int, ttl time.Duration, nodes ...string) *fleet {
	t.Helper()
	f := &fleet{T: t, dsn: dsn, clock: filepath.Join(t.TempDir(), "clock"), config: filepath.Join(t.TempDir(), "controlplane.yaml"), relay: newRelay(t)}
	var b strings.Builder
	fmt.Fprintf(&b, "listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0, token: env:ADMIN}\nstorage: {postgres: {dsn: env:DSN, schema: %s}}\n", schema)
	fmt.Fprintf(&b, "grants: {ttl: %s}\ntimeouts: {storage: 2s, drain: 10s}\nnodes:\n", ttl)
	for _, n := range append(nodes, probe) {
		fmt.Fprintf(&b, "  - {name: %s, token: env:TOKEN_%s}\n", n, n)
		f.env = append(f.env, "TOKEN_"+n+"="+tokenOf(n))
	}
	require.NoError(t, os.WriteFile(f.config, []byte(b.String()), 0o600))
	f.planes = make([]*plane, planes)
	var wait sync.WaitGroup
	for i := range f.planes {
		wait.Go(func() { f.planes[i] = f.start() })
	}
	wait.Wait()
	f.address()
	return f
}

// address tells the relay where the control planes are.
func (f *fleet) address() {
	f.Helper()
	var urls []string
	for _, p := range f.planes {
		require.NotNil(f, p.admin, "the control plane did not start: %s", p.said)
		urls = append(urls, p.nodes)
	}
	f.relay.to(urls...)
}

// plane is `controlplane serve` in a process of its own.
type plane struct {
	*exec.Cmd
	f     *fleet
	nodes string
	admin *admin.Client
	said  *bytes.Buffer
	wait  func() error
}

func (f *fleet) start() *plane {
	p := &plane{f: f, Cmd: exec.Command(os.Args[0], "serve", "-migrate", "-config", f.config), said: &bytes.Buffer{}}
	p.Env = append(append(os.Environ(), asChild+"=plane", clockFile+"="+f.clock, "ADMIN="+adminToken, "DSN="+f.dsn, "GORACE=atexit_sleep_ms=0"), f.env...)
	p.Stderr = p.said
	out, err := p.StdoutPipe()
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		f.Error(err)
		return p
	}
	p.wait = sync.OnceValue(p.Wait)
	f.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		name, at, _ := strings.Cut(lines.Text(), ":")
		switch at = strings.TrimSpace(at); name {
		case "nodes":
			p.nodes = at
		case "operators":
			p.admin = &admin.Client{Base: at, Token: adminToken}
			return p
		}
	}
	return p
}

// restart ends a control plane, in good order or not, and starts another in its place.
func (f *fleet) restart(i int, by syscall.Signal) {
	f.Helper()
	p := f.planes[i]
	require.NoError(f, p.Process.Signal(by))
	if err := p.wait(); by == syscall.SIGTERM {
		require.NoError(f, err, p.said)
	}
	f.planes[i] = f.start()
	f.address()
}

type object map[string]any

// do makes one call of the admin API, which must succeed.
func (p *plane) do(method, path string, body, into any) {
	p.f.Helper()
	require.NoError(p.f, p.admin.Do(p.f.Context(), method, path, url.Values{}, body, into))
}

// policy is one hard budget of the team acme for the day.
func (f *fleet) policy(milliUSD, grantMilliUSD int64, renew string) {
	f.Helper()
	require.NoError(f, f.tryPolicy(milliUSD, grantMilliUSD, renew))
}

// tryPolicy is policy, while the database may be away.
func (f *fleet) tryPolicy(milliUSD, grantMilliUSD int64, renew string) error {
	documents, err := policyyaml.Decode(fmt.Appendf(nil, `apiVersion: tallystick.dev/v1alpha1
kind: GovernancePolicy
metadata: {name: acme}
spec:
  subject: {team: acme}
  rules:
    - {name: day, failurePolicy: FailClosed, budget: {limitMilliUSD: %d, hardCap: true, period: day, lease: {grantMilliUSD: %d, renewInterval: %s}}}
`, milliUSD, grantMilliUSD, renew))
	if err != nil {
		return err
	}
	return f.edit(documents)
}

// edit makes documents the only ones.
func (f *fleet) edit(documents []policy.Document) error {
	edit := object{"documents": append([]policy.Document{}, documents...), "replace": true}
	var diff report.PolicyDiff
	if err := f.planes[0].admin.Do(f.Context(), http.MethodPost, "policies/diff", nil, edit, &diff); err != nil {
		return err
	}
	edit["expect"], edit["actor"], edit["reason"] = diff.Expect, "ops", "a test"
	return f.planes[0].admin.Do(f.Context(), http.MethodPost, "policies", nil, edit, nil)
}

// budget is how the only budget stands.
func (f *fleet) budget() (escrow.Definition, escrow.Budget) {
	f.Helper()
	c, err := escrowhttp.NewClient(escrowhttp.ClientOptions{URL: f.planes[0].nodes, Token: func() (string, error) { return tokenOf(probe), nil }})
	require.NoError(f, err)
	defer c.Close()
	f.beats++
	a, err := c.Beat(f.Context(), &escrow.Heartbeat{Node: probe, Boot: escrow.BootID{1, 6: 0x40, 8: 0x80}, BootNumber: 1, Sequence: f.beats})
	require.NoError(f, err)
	require.Len(f, a.Budgets, 1)
	return a.Definitions[0], a.Budgets[0]
}

// out is what is at nodes, or lost with them.
func (f *fleet) out() (sum report.Out, list []report.Node) {
	f.Helper()
	var page report.NodePage
	f.planes[0].do(http.MethodGet, "nodes", nil, &page)
	for _, n := range page.Nodes {
		if n.Name == probe {
			continue
		}
		list = append(list, n)
		sum.Outstanding, sum.Stranded = sum.Outstanding+n.Outstanding, sum.Stranded+n.Stranded
		sum.Burned, sum.Pending = sum.Burned+n.Burned, sum.Pending+n.Pending
	}
	return sum, list
}

// holds are what nodes hold, and what they lost.
func (f *fleet) holds() (all []report.Hold) {
	f.Helper()
	for after := ""; ; {
		var page report.HoldPage
		q := url.Values{}
		if after != "" {
			q.Set("after", after)
		}
		require.NoError(f, f.planes[0].admin.Do(f.Context(), http.MethodGet, "holds", q, nil, &page))
		if all = append(all, page.Holds...); page.Next == "" {
			return all
		}
		after = page.Next
	}
}

// balanced is how every test ends: nothing was spent beyond the limit, and the books are
// what the grants add up to.
func (f *fleet) balanced(limit int64) {
	f.Helper()
	_, b := f.budget()
	require.LessOrEqual(f, f.spent.Load(), limit, "the providers were paid no more than the limit")
	require.LessOrEqual(f, int64(b.Consumed+b.Uncertain+b.Reserved+b.Granted), limit)
	require.LessOrEqual(f, f.spent.Load(), int64(b.Consumed+b.Uncertain+b.Granted), "and every microUSD of it is on the books")
	f.verified()
}

// verified says that the books are what the grants add up to.
func (f *fleet) verified() {
	f.Helper()
	var v report.Verification
	f.planes[0].do(http.MethodPost, "verify", nil, &v)
	require.Empty(f, v.Differences)
}

// node is a node in this process: a journal, and the syncer of it.
type node struct {
	f      *fleet
	name   string
	store  journal.Store
	wire   *wire
	ledger *journal.Journal
	syncer *escrow.Syncer
}

// wire is a node's connection, which ends with its process.
type wire struct {
	http.RoundTripper
	cut atomic.Bool
}

var errCut = errors.New("the process is gone")

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	if w.cut.Load() {
		return nil, errCut
	}
	resp, err := w.RoundTripper.RoundTrip(r)
	if w.cut.Load() && err == nil {
		_ = resp.Body.Close()
		return nil, errCut
	}
	return resp, err
}

// mortal is a ledger of which nothing is done any more once its process is gone.
type mortal struct {
	escrow.Ledger
	wire *wire
}

func (m mortal) Next(ctx context.Context, leaving bool) (*escrow.Heartbeat, error) {
	if m.wire.cut.Load() {
		return nil, errCut
	}
	return m.Ledger.Next(ctx, leaving)
}

func (m mortal) Take(ctx context.Context, h *escrow.Heartbeat, a *escrow.Answer, sent time.Time) error {
	if m.wire.cut.Load() {
		return errCut
	}
	return m.Ledger.Take(ctx, h, a, sent)
}

// node starts a node for the first time.
func (f *fleet) node(name string) *node {
	f.Helper()
	n := &node{f: f, name: name, store: keptOpen{journaltest.NewMemory()}}
	n.boot()
	return n
}

// keptOpen is a store that outlives the journals on it, as a file does.
type keptOpen struct{ journal.Store }

func (keptOpen) Close() error { return nil }

// boot opens the journal and begins to talk.
func (n *node) boot() {
	n.f.Helper()
	n.wire = &wire{RoundTripper: &http.Transport{}}
	c, err := escrowhttp.NewClient(escrowhttp.ClientOptions{
		URL: n.f.relay.URL, Token: func() (string, error) { return tokenOf(n.name), nil }, Transport: n.wire, Timeout: 2 * time.Second,
	})
	require.NoError(n.f, err)
	n.ledger, err = journal.Open(n.f.Context(), n.store, &journal.Options{Node: n.name, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(n.f, err)
	n.syncer, err = escrow.NewSyncer(c, mortal{n.ledger, n.wire}, &escrow.SyncerOptions{
		Gap: 5 * time.Millisecond, Timeout: time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(n.f, err)
}

// ready waits for the first answer.
func (n *node) ready() *node {
	n.f.Helper()
	require.Eventually(n.f, n.syncer.Ready, patience, tick)
	return n
}

// leave stops in good order.
func (n *node) leave() {
	n.f.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(n.f.Context()), patience)
	defer cancel()
	require.NoError(n.f, n.syncer.Close(ctx))
	require.NoError(n.f, n.ledger.Close())
}

// crash ends the node as kill -9 does: nothing of it is heard any more.
func (n *node) crash() {
	n.wire.cut.Store(true)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	_ = n.syncer.Close(gone)
	_ = n.ledger.Close()
}

// spend pays a provider, if the node has credit for the most that it may cost.
func (n *node) spend(bound, cost amount.MicroUSD) bool {
	ctx := n.f.Context()
	var needs []journal.Need
	for _, d := range n.ledger.Definitions() {
		needs = append(needs, journal.Need{Account: d.Account, Amount: bound, Soft: !d.Hard})
	}
	if len(needs) == 0 {
		return false
	}
	r := journal.Reservation{ID: journal.NewID(), Needs: needs}
	if err := n.ledger.Reserve(ctx, r); err != nil {
		return false
	}
	n.f.spent.Add(int64(cost))
	_ = n.ledger.Settle(ctx, r.ID, journal.Used(cost)) // who is gone by now does not settle
	return true
}
