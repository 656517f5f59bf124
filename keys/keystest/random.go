package keystest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/tallystick-go/tallystick/keys"
)

// The model: what a store must answer, in the plainest form. It shares no code
// with package keys. The clock moves by whole hours from hour 1, expiries lie half
// an hour off, so that the time the test itself takes never decides.
type model struct {
	hour    int
	teams   map[string]*modelTeam
	keys    map[string]*modelKey
	secrets []*modelSecret
}

type modelTeam struct {
	revision int64
	deleted  bool
	limit    int64 // tokens per day, -1 for none
}

type modelKey struct {
	team      string
	owner     string
	revision  int64
	revoked   bool
	expires   int // in half hours, 0 for none
	rotations map[string]*modelSecret
}

type modelSecret struct {
	token   keys.Token
	key     string
	grace   time.Duration
	retires int // in half hours, 0 for none
}

// modelPrincipal is a principal that was handed out before.
type modelPrincipal struct {
	p            keys.Principal
	key          string
	secret       *modelSecret
	retires      int
	keyRev, team int64
}

func storeRandom(k *kit)        { randomOperations(k, [2]keys.Store{k.s, k.s}) }
func storeRandomHandles(k *kit) { randomOperations(k, k.handles()) }

// SeedVariable replays a run of the random cases.
const SeedVariable = "KEYSTEST_SEED"

func randomOperations(k *kit, handles [2]keys.Store) {
	seed := rand.Uint64()
	if text := os.Getenv(SeedVariable); text != "" {
		seed = must(strconv.ParseUint(text, 10, 64))(k)
	}
	k.Logf("%s=%d", SeedVariable, seed)
	w := &walker{
		kit: k, r: rand.New(rand.NewPCG(seed, 0)), handles: handles,
		m:     model{hour: 1, teams: map[string]*modelTeam{}, keys: map[string]*modelKey{}},
		begin: time.Now().Add(-time.Hour),
	}
	ops := []func(){
		w.createTeam, w.updateTeam, w.deleteTeam, w.createKey, w.createKey, w.updateKey, w.updateKey, w.revokeKey, w.revokeSelf,
		w.rotateKey, w.rotateKey, w.resolve, w.resolve, w.resolve, w.reload, w.reload, w.advance,
	}
	for w.step = range 300 {
		w.s = handles[w.r.IntN(2)]
		ops[w.r.IntN(len(ops))]()
	}
	w.compareAll()
}

type walker struct {
	*kit
	r          *rand.Rand
	handles    [2]keys.Store
	m          model
	principals []*modelPrincipal
	begin      time.Time
	step       int
}

func (w *walker) pick(prefix string, n int) string { return prefix + strconv.Itoa(w.r.IntN(n)) }

// expect compares an answer's error with the model's and reports whether the call
// went through.
func (w *walker) expect(got, want error, what string) bool {
	w.Helper()
	if want == nil {
		w.truth(got == nil, "step %d, %s: got %v, want no error", w.step, what, got)
		return true
	}
	w.is(got, want, fmt.Sprintf("step %d, %s", w.step, what))
	return false
}

// revision is mostly the right one.
func (w *walker) revision(current int64) int64 {
	if w.r.IntN(4) == 0 {
		return current + 1 + w.r.Int64N(3)
	}
	return current
}

func (w *walker) createTeam() {
	id := w.pick("t", 4)
	var want error
	if w.m.teams[id] != nil {
		want = keys.ErrExists
	}
	_, err := w.s.CreateTeam(w.ctx, keys.CreateTeam{ID: id})
	if w.expect(err, want, "CreateTeam "+id) {
		w.m.teams[id] = &modelTeam{revision: 1, limit: -1}
	}
}

func (w *walker) updateTeam() {
	id, limit := w.pick("t", 4), w.r.Int64N(3)-1
	team, at := w.m.teams[id], int64(1)
	var want error
	if team == nil {
		want = keys.ErrNotFound
	} else {
		at = w.revision(team.revision)
		switch {
		case team.deleted:
			want = keys.ErrRevoked
		case team.limit != limit && at != team.revision:
			want = keys.ErrStale
		}
	}
	change := keys.Set[*int64](nil)
	if limit >= 0 {
		change = keys.Set(keys.Limit(limit))
	}
	got, err := w.s.UpdateTeam(w.ctx, keys.UpdateTeam{ID: id, IfRevision: at, Limits: keys.LimitsChange{TokensPerDay: change}})
	if w.expect(err, want, "UpdateTeam "+id) {
		if team.limit != limit {
			team.limit = limit
			team.revision++
		}
		w.truth(got.Revision == team.revision, "step %d: the team is at revision %d, want %d", w.step, got.Revision, team.revision)
	}
}

func (w *walker) deleteTeam() {
	if w.r.IntN(3) > 0 {
		return // or there would soon be no team left
	}
	id := w.pick("t", 4)
	team := w.m.teams[id]
	var want error
	if team == nil {
		want = keys.ErrNotFound
	}
	_, err := w.s.DeleteTeam(w.ctx, keys.DeleteTeam{ID: id})
	if w.expect(err, want, "DeleteTeam "+id) && !team.deleted {
		team.deleted = true
		team.revision++
	}
}

func (w *walker) expiry() (halfHours int, at *time.Time) {
	if w.r.IntN(2) == 0 {
		return 0, nil
	}
	halfHours = 2*w.m.hour + 1 + 2*w.r.IntN(6)
	return halfHours, ptr(w.begin.Add(time.Duration(halfHours) * 30 * time.Minute))
}

func (w *walker) createKey() {
	id, teamID, owner := w.pick("k", 10), w.pick("t", 4), w.pick("user", 3)
	team := w.m.teams[teamID]
	var want error
	switch {
	case team == nil:
		want = keys.ErrNotFound
	case team.deleted:
		want = keys.ErrRevoked
	case w.m.keys[id] != nil:
		want = keys.ErrExists
	}
	c := keys.CreateKey{ID: id, TeamID: teamID, Owner: owner}
	expires := 0
	if expires, c.ExpiresAt = w.expiry(); want == nil && len(w.m.secrets) > 0 && w.r.IntN(4) == 0 {
		c.Token, want = w.m.secrets[w.r.IntN(len(w.m.secrets))].token, keys.ErrConflict
	}
	made, err := w.s.CreateKey(w.ctx, c)
	if w.expect(err, want, "CreateKey "+id) {
		secret := &modelSecret{token: made.Token, key: id}
		w.m.secrets = append(w.m.secrets, secret)
		w.m.keys[id] = &modelKey{team: teamID, owner: owner, revision: 1, expires: expires, rotations: map[string]*modelSecret{}}
	}
}

func (w *walker) updateKey() {
	id, owner := w.pick("k", 10), w.pick("user", 3)
	key, at := w.m.keys[id], int64(1)
	expires, expiresAt := w.expiry()
	var want error
	changed := false
	if key == nil {
		want = keys.ErrNotFound
	} else {
		at = w.revision(key.revision)
		changed = key.owner != owner || key.expires != expires
		switch {
		case key.revoked:
			want = keys.ErrRevoked
		case changed && at != key.revision:
			want = keys.ErrStale
		}
	}
	got, err := w.s.UpdateKey(w.ctx, keys.UpdateKey{ID: id, IfRevision: at, Owner: keys.Set(owner), ExpiresAt: keys.Set(expiresAt)})
	if w.expect(err, want, "UpdateKey "+id) {
		if changed {
			key.owner, key.expires = owner, expires
			key.revision++
		}
		w.truth(got.Revision == key.revision && got.Owner == owner, "step %d: the key is at revision %d, want %d", w.step, got.Revision, key.revision)
	}
}

func (w *walker) revokeKey() {
	if w.r.IntN(3) > 0 {
		return
	}
	id := w.pick("k", 10)
	key := w.m.keys[id]
	var want error
	if key == nil {
		want = keys.ErrNotFound
	}
	_, err := w.s.RevokeKey(w.ctx, keys.RevokeKey{ID: id})
	if w.expect(err, want, "RevokeKey "+id) && !key.revoked {
		key.revoked = true
		key.revision++
	}
}

func (w *walker) rotateKey() {
	id, rotation := w.pick("k", 10), w.pick("r", 4)
	key := w.m.keys[id]
	ask := keys.RotateKey{ID: id, RotationID: rotation, IfRevision: 1, Grace: time.Duration(w.r.IntN(3)) * 90 * time.Minute}
	if w.r.IntN(2) == 0 {
		ask.Token = mint(w.kit)
	}
	var want error
	replay := false
	if key == nil {
		want = keys.ErrNotFound
	} else {
		ask.IfRevision = w.revision(key.revision)
		earlier := key.rotations[rotation]
		switch {
		case earlier != nil && (earlier.grace != ask.Grace || !ask.Token.IsZero()):
			want = keys.ErrConflict
		case earlier != nil:
			replay = true
		case key.revoked:
			want = keys.ErrRevoked
		case w.m.passed(key.expires):
			want = keys.ErrExpired
		case ask.IfRevision != key.revision:
			want = keys.ErrConflict
		}
	}
	got, err := w.s.RotateKey(w.ctx, ask)
	if !w.expect(err, want, "RotateKey "+id+" "+rotation) {
		return
	}
	w.truth(got.Replayed == replay && got.Token.IsZero() == replay, "step %d: a rotation is replayed once it was done", w.step)
	if !replay {
		retires := 2*w.m.hour + int(ask.Grace/(30*time.Minute))
		for _, old := range w.m.secrets {
			if old.key == id && (old.retires == 0 || old.retires > retires) {
				old.retires = retires
			}
		}
		secret := &modelSecret{token: got.Token, key: id, grace: ask.Grace}
		w.m.secrets = append(w.m.secrets, secret)
		key.rotations[rotation] = secret
		key.revision++
	}
	w.truth(got.Key.Revision == key.revision, "step %d: the key is at revision %d, want %d", w.step, got.Key.Revision, key.revision)
}

func (m *model) passed(halfHours int) bool { return halfHours > 0 && 2*m.hour >= halfHours }

// verdict is what a store must say of a key, presented by secret or by its id.
func (m *model) verdict(key *modelKey, retires int) error {
	switch {
	case key == nil:
		return keys.ErrUnknown
	case key.revoked, m.teams[key.team].deleted:
		return keys.ErrRevoked
	case m.passed(key.expires):
		return keys.ErrExpired
	case m.passed(retires):
		return keys.ErrRevoked
	}
	return nil
}

func (w *walker) resolve() {
	token, want, id := mint(w.kit), keys.ErrUnknown, ""
	var secret *modelSecret
	if len(w.m.secrets) > 0 && w.r.IntN(10) > 0 {
		secret = w.m.secrets[w.r.IntN(len(w.m.secrets))]
		token, id = secret.token, secret.key
		want = w.m.verdict(w.m.keys[id], secret.retires)
	}
	p, err := w.s.Resolve(w.ctx, token.Reveal())
	if w.expect(err, want, "Resolve a token of "+id) {
		w.check(p, id)
		w.principals = append(w.principals, w.remember(p, id, secret))
	}
}

func (w *walker) remember(p keys.Principal, id string, secret *modelSecret) *modelPrincipal {
	key := w.m.keys[id]
	return &modelPrincipal{p: p, key: id, secret: secret, retires: secret.retires, keyRev: key.revision, team: w.m.teams[key.team].revision}
}

func (w *walker) check(p keys.Principal, id string) {
	w.Helper()
	key := w.m.keys[id]
	team := w.m.teams[key.team]
	want := keys.Revision{Key: key.revision, Team: team.revision}
	w.truth(p.KeyID == id && p.TeamID == key.team && p.User == key.owner && p.Revision() == want,
		"step %d: got %v of %q at %v, want key %s of team %s of %q at %v", w.step, p, p.User, p.Revision(), id, key.team, key.owner, want)
	w.truth((p.Team.Limits.TokensPerDay == nil) == (team.limit < 0), "step %d: the team's limit", w.step)
}

func (w *walker) reload() {
	if len(w.principals) == 0 {
		return
	}
	old := w.principals[w.r.IntN(len(w.principals))]
	p, err := w.s.Reload(w.ctx, old.p)
	if w.expect(err, w.m.verdict(w.m.keys[old.key], old.secret.retires), "Reload "+old.key) {
		w.check(p, old.key)
		*old = *w.remember(p, old.key, old.secret)
	}
}

func (w *walker) revokeSelf() {
	if len(w.principals) == 0 || w.r.IntN(3) > 0 {
		return
	}
	old := w.principals[w.r.IntN(len(w.principals))]
	key := w.m.keys[old.key]
	want := w.m.verdict(key, old.retires) // by what the principal knew of its token
	if want == nil && (old.keyRev != key.revision || old.team != w.m.teams[key.team].revision) {
		want = keys.ErrStale
	}
	if key.revoked {
		want = nil
	}
	_, err := w.s.RevokeSelf(w.ctx, old.p)
	if w.expect(err, want, "RevokeSelf "+old.key) && !key.revoked {
		key.revoked = true
		key.revision++
	}
}

func (w *walker) advance() {
	if !w.h.Features.Clock || w.r.IntN(2) > 0 {
		return
	}
	w.kit.advance(time.Hour)
	w.m.hour++
}

func (w *walker) compareAll() {
	var got, want []string
	for _, id := range w.listKeys(keys.ListKeys{Limit: 3}) {
		key := must(w.s.Key(w.ctx, id))(w.kit)
		got = append(got, fmt.Sprint(id, key.TeamID, key.Owner, key.Revision, key.RevokedAt != nil, key.ExpiresAt != nil))
	}
	for id, key := range w.m.keys {
		want = append(want, fmt.Sprint(id, key.team, key.owner, key.revision, key.revoked, key.expires != 0))
	}
	slices.Sort(want)
	slices.Sort(got)
	same(w.kit, got, want, "the keys at the end")
	for id, team := range w.m.teams {
		stored := must(w.s.Team(w.ctx, id))(w.kit)
		w.truth(stored.Revision == team.revision && (stored.DeletedAt != nil) == team.deleted, "team %s at the end", id)
	}
}
