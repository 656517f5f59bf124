package keystest

import (
	"math"
	"strings"

	"github.com/tallystick-go/tallystick/governance/amount"
	"github.com/tallystick-go/tallystick/keys"
)

var teamCases = []suiteCase{
	{name: "CreateTeam/ReadBackEqualsWrite", run: createTeamRoundTrip},
	{name: "CreateTeam/MintsAnID", run: createTeamMintsID},
	{name: "CreateTeam/IDIsTakenForEver", run: createTeamTaken},
	{name: "CreateTeam/IDsAreExact", run: createTeamExact},
	{name: "CreateTeam/BadInputChangesNothing", run: createTeamInvalid},
	{name: "UpdateTeam/ChangesOnlyWhatIsSet", run: updateTeamScoped},
	{name: "UpdateTeam/UnlimitedIsNotLeftAlone", run: updateTeamUnlimited},
	{name: "UpdateTeam/ComparesTheRevision", run: updateTeamStale},
	{name: "UpdateTeam/InForceAlreadyIsNoError", run: updateTeamRepeat},
	{name: "UpdateTeam/BadInputChangesNothing", run: updateTeamInvalid},
	{name: "UpdateTeam/RenameKeepsTheID", run: updateTeamRename},
	{name: "DeleteTeam/LeavesATombstone", run: deleteTeamTombstone},
	{name: "DeleteTeam/RefusesItsKeys", run: deleteTeamKeys},
	{name: "DeleteTeam/ComparesTheRevision", run: deleteTeamStale},
	{name: "Team/NotFound", run: teamNotFound},
}

// fullLimits has every limit, at the ends of what fits.
func fullLimits() keys.Limits {
	return keys.Limits{
		RequestsPerMinute: keys.Limit(math.MaxInt64), TokensPerMinute: keys.Limit(0), TokensPerDay: keys.Limit(1 << 40),
		Concurrency: keys.Limit(1), CostPerDay: keys.Cost(math.MaxInt64), CostPerMonth: keys.Cost(amount.MicroUSD(1<<53 + 1)),
	}
}

// awkward text has what comma-joined lists, LIKE patterns, SQL and JSON trip on.
var awkward = []string{"a,b", `quo"te`, "per%cent_", `back\slash`, "'; --", "ünïcode", "<&>", " led by a space", "A", "a"}

func createTeamRoundTrip(k *kit) {
	want := keys.CreateTeam{
		ID: "Red.team:1", Name: "Rot & <b>", Limits: fullLimits(), AllowedModels: awkward, AllowedRegions: []string{},
		Guardrail: "strict/v2", Metadata: map[string]string{"cost center": `4711 "x"`, "k": ""}, DefaultMaxTokens: ptr[int64](math.MaxInt64),
	}
	team := must(k.s.CreateTeam(k.ctx, want))(k)
	same(k, team.Limits, want.Limits, "limits are kept to the last bit")
	same(k, team.AllowedModels, want.AllowedModels, "list entries are kept exactly and in order")
	k.truth(team.AllowedRegions != nil && len(team.AllowedRegions) == 0, "an empty list allows nothing and must not turn into nil")
	same(k, team.Metadata, want.Metadata, "metadata is kept")
	k.truth(team.ID == want.ID && team.Name == want.Name && team.Guardrail == want.Guardrail && *team.DefaultMaxTokens == math.MaxInt64, "fields are kept")
	k.truth(team.Revision > 0 && team.DeletedAt == nil, "a new team has a revision and no tombstone")
	k.truth(!team.CreatedAt.IsZero() && team.CreatedAt.Equal(team.UpdatedAt), "a new team has its times")
	same(k, must(k.s.Team(k.ctx, want.ID))(k), team, "reading back gives what was written")

	bare := k.team("bare")
	k.truth(bare.Limits == (keys.Limits{}) && bare.AllowedModels == nil && bare.AllowedRegions == nil && bare.DefaultMaxTokens == nil,
		"absent limits are unlimited and absent lists allow all")
	same(k, must(k.s.Team(k.ctx, "bare"))(k), bare, "reading back gives what was written")
}

func createTeamMintsID(k *kit) {
	a := must(k.s.CreateTeam(k.ctx, keys.CreateTeam{}))(k)
	b := must(k.s.CreateTeam(k.ctx, keys.CreateTeam{}))(k)
	k.truth(a.ID != "" && a.ID != b.ID, "teams without an id get different ones")
}

func createTeamTaken(k *kit) {
	k.team("red")
	fails(k.s.CreateTeam(k.ctx, keys.CreateTeam{ID: "red", Name: "other"}))(k, keys.ErrExists, "an id is used once")
	must(k.s.DeleteTeam(k.ctx, keys.DeleteTeam{ID: "red"}))(k)
	fails(k.s.CreateTeam(k.ctx, keys.CreateTeam{ID: "red"}))(k, keys.ErrExists, "a tombstone keeps its id")
	k.truth(must(k.s.Team(k.ctx, "red"))(k).Name == "Team red", "a refused create changes nothing")
}

func createTeamExact(k *kit) {
	for _, id := range []string{"red", "Red", "RED", "red.", "red-1", "red_1", "red:1"} {
		k.team(id)
	}
	k.truth(must(k.s.Team(k.ctx, "Red"))(k).Name == "Team Red", "ids differ by case")
}

func badTeams() map[string]keys.CreateTeam {
	minus, huge := keys.Limit(-1), strings.Repeat("x", 5000)
	many := make([]string, keys.MaxListEntries+1)
	for i := range many {
		many[i] = "m" + strings.Repeat("i", i)
	}
	return map[string]keys.CreateTeam{
		"negative requests":   {Limits: keys.Limits{RequestsPerMinute: minus}},
		"negative tokens":     {Limits: keys.Limits{TokensPerMinute: minus}},
		"negative day":        {Limits: keys.Limits{TokensPerDay: keys.Limit(math.MinInt64)}},
		"negative slots":      {Limits: keys.Limits{Concurrency: minus}},
		"negative cost":       {Limits: keys.Limits{CostPerDay: keys.Cost(-1)}},
		"negative month":      {Limits: keys.Limits{CostPerMonth: keys.Cost(-1)}},
		"id with a space":     {ID: "a b"},
		"id with a slash":     {ID: "a/b"},
		"id with a control":   {ID: "a\x00"},
		"id with punctuation": {ID: ".a"},
		"id too long":         {ID: strings.Repeat("a", keys.MaxIDBytes+1)},
		"name with control":   {Name: "a\nb"},
		"name not UTF-8":      {Name: "a\xffb"},
		"name reordering":     {Name: "a\u202eb"},
		"name too long":       {Name: huge},
		"guardrail too long":  {Guardrail: huge},
		"guardrail control":   {Guardrail: "\x07"},
		"empty model":         {AllowedModels: []string{"a", ""}},
		"control in model":    {AllowedModels: []string{"a\x00b"}},
		"model twice":         {AllowedModels: []string{"a", "a"}},
		"too many regions":    {AllowedRegions: many},
		"region too long":     {AllowedRegions: []string{huge}},
		"metadata too big":    {Metadata: map[string]string{"a": huge}},
		"metadata no name":    {Metadata: map[string]string{"": "a"}},
		"metadata control":    {Metadata: map[string]string{"a": "\x00"}},
		"default of zero":     {DefaultMaxTokens: ptr[int64](0)},
		"default negative":    {DefaultMaxTokens: minus},
	}
}

func createTeamInvalid(k *kit) {
	for name, c := range badTeams() {
		fails(k.s.CreateTeam(k.ctx, c))(k, keys.ErrInvalid, name)
	}
	k.truth(len(must(k.s.Teams(k.ctx, keys.ListTeams{}))(k).Teams) == 0, "a refused create stores nothing")
}

func updateTeamScoped(k *kit) {
	before := must(k.s.CreateTeam(k.ctx, keys.CreateTeam{
		ID: "red", Name: "Red", Limits: fullLimits(), AllowedModels: []string{"a"}, Guardrail: "g", Metadata: map[string]string{"a": "b"},
	}))(k)
	after := must(k.s.UpdateTeam(k.ctx, keys.UpdateTeam{
		ID: "red", IfRevision: before.Revision, Limits: keys.LimitsChange{TokensPerDay: keys.Set(keys.Limit(7))},
		AllowedRegions: keys.Set([]string{"eu"}),
	}))(k)
	k.truth(after.Revision > before.Revision, "an edit gives another revision")
	want := before
	want.Limits.TokensPerDay, want.AllowedRegions = keys.Limit(7), []string{"eu"}
	want.Revision, want.UpdatedAt = after.Revision, after.UpdatedAt
	same(k, after, want, "an edit changes what it sets and nothing else")
	same(k, must(k.s.Team(k.ctx, "red"))(k), after, "the edit is stored")
}

func updateTeamUnlimited(k *kit) {
	team := must(k.s.CreateTeam(k.ctx, keys.CreateTeam{ID: "red", Limits: fullLimits(), AllowedModels: []string{}, DefaultMaxTokens: ptr[int64](5)}))(k)
	team = must(k.s.UpdateTeam(k.ctx, keys.UpdateTeam{
		ID: "red", IfRevision: team.Revision,
		Limits: keys.LimitsChange{
			RequestsPerMinute: keys.Set[*int64](nil), CostPerDay: keys.Set[*amount.MicroUSD](nil), TokensPerMinute: keys.Set(keys.Limit(0)),
		},
		AllowedModels: keys.Set[[]string](nil), DefaultMaxTokens: keys.Set[*int64](nil),
	}))(k)
	want := fullLimits()
	want.RequestsPerMinute, want.CostPerDay = nil, nil
	same(k, team.Limits, want, "nil takes a limit away, zero is a limit of zero")
	k.truth(team.AllowedModels == nil && team.DefaultMaxTokens == nil, "nil takes a list and a default away")
	same(k, must(k.s.Team(k.ctx, "red"))(k), team, "the edit is stored")
}

func updateTeamStale(k *kit) {
	team := k.team("red")
	next := must(k.s.UpdateTeam(k.ctx, keys.UpdateTeam{ID: "red", IfRevision: team.Revision, Name: keys.Set("one")}))(k)
	fails(k.s.UpdateTeam(k.ctx, keys.UpdateTeam{ID: "red", IfRevision: team.Revision, Name: keys.Set("two")}))(k, keys.ErrStale, "an old revision")
	fails(k.s.UpdateTeam(k.ctx, keys.UpdateTeam{ID: "red", IfRevision: next.Revision + 1, Name: keys.Set("two")}))(k, keys.ErrStale, "a future revision")
	same(k, must(k.s.Team(k.ctx, "red"))(k), next, "a refused edit changes nothing")
}

func updateTeamRepeat(k *kit) {
	team := k.team("red")
	edit := keys.UpdateTeam{ID: "red", IfRevision: team.Revision, Name: keys.Set("one"), AllowedModels: keys.Set([]string{})}
	once := must(k.s.UpdateTeam(k.ctx, edit))(k)
	same(k, must(k.s.UpdateTeam(k.ctx, edit))(k), once, "an edit in force can be repeated and changes nothing")
}

func updateTeamInvalid(k *kit) {
	team := k.team("red")
	at := func(u keys.UpdateTeam) keys.UpdateTeam {
		u.ID, u.IfRevision = "red", team.Revision
		return u
	}
	for name, u := range map[string]keys.UpdateTeam{
		"no revision":       {ID: "red", Name: keys.Set("x")},
		"negative revision": {ID: "red", IfRevision: -1},
		"no id":             {IfRevision: 1},
		"negative limit":    at(keys.UpdateTeam{Limits: keys.LimitsChange{CostPerMonth: keys.Set(keys.Cost(-1))}}),
		"control in name":   at(keys.UpdateTeam{Name: keys.Set("\x1b")}),
		"empty entry":       at(keys.UpdateTeam{AllowedRegions: keys.Set([]string{""})}),
		"big metadata":      at(keys.UpdateTeam{Metadata: keys.Set(map[string]string{"a": strings.Repeat("<", 1000)})}),
		"default of zero":   at(keys.UpdateTeam{DefaultMaxTokens: keys.Set(ptr[int64](0))}),
	} {
		fails(k.s.UpdateTeam(k.ctx, u))(k, keys.ErrInvalid, name)
	}
	fails(k.s.UpdateTeam(k.ctx, keys.UpdateTeam{ID: "blue", IfRevision: 1}))(k, keys.ErrNotFound, "a team that never was")
	same(k, must(k.s.Team(k.ctx, "red"))(k), team, "a refused edit changes nothing")
}

func updateTeamRename(k *kit) {
	made := k.one()
	team := must(k.s.Team(k.ctx, "red"))(k)
	must(k.s.UpdateTeam(k.ctx, keys.UpdateTeam{ID: "red", IfRevision: team.Revision, Name: keys.Set("Scarlet")}))(k)
	p := k.resolve(made.Token)
	k.truth(p.TeamID == "red" && p.Team.Name == "Scarlet", "a new name is not a new accounting id")
}

func deleteTeamTombstone(k *kit) {
	team := k.team("red")
	gone := must(k.s.DeleteTeam(k.ctx, keys.DeleteTeam{ID: "red", IfRevision: team.Revision}))(k)
	k.truth(gone.DeletedAt != nil && gone.Revision > team.Revision, "a deleted team is a tombstone with a revision of its own")
	same(k, must(k.s.DeleteTeam(k.ctx, keys.DeleteTeam{ID: "red", IfRevision: team.Revision}))(k), gone, "deleting again changes nothing")
	same(k, must(k.s.Team(k.ctx, "red"))(k), gone, "a tombstone can be read: history keeps its names")
	fails(k.s.UpdateTeam(k.ctx, keys.UpdateTeam{ID: "red", IfRevision: gone.Revision, Name: keys.Set("x")}))(k, keys.ErrRevoked, "a tombstone cannot be edited")
	fails(k.s.CreateKey(k.ctx, keys.CreateKey{TeamID: "red"}))(k, keys.ErrRevoked, "a tombstone gets no keys")
	fails(k.s.DeleteTeam(k.ctx, keys.DeleteTeam{ID: "blue"}))(k, keys.ErrNotFound, "a team that never was")
}

func deleteTeamKeys(k *kit) {
	made := k.one()
	p := k.resolve(made.Token)
	must(k.s.DeleteTeam(k.ctx, keys.DeleteTeam{ID: "red"}))(k)
	fails(k.s.Resolve(k.ctx, made.Token.Reveal()))(k, keys.ErrRevoked, "the keys of a deleted team are refused")
	fails(k.s.Reload(k.ctx, p))(k, keys.ErrRevoked, "and so are principals made before")
	fails(k.s.RevokeSelf(k.ctx, p))(k, keys.ErrRevoked, "a principal of a deleted team holds no longer")
	k.truth(must(k.s.Key(k.ctx, "k"))(k).TeamID == "red", "a key keeps its team in history")
	must(k.s.RevokeKey(k.ctx, keys.RevokeKey{ID: "k"}))(k)
}

func deleteTeamStale(k *kit) {
	team := k.team("red")
	fails(k.s.DeleteTeam(k.ctx, keys.DeleteTeam{ID: "red", IfRevision: team.Revision + 1}))(k, keys.ErrStale, "another revision")
	fails(k.s.DeleteTeam(k.ctx, keys.DeleteTeam{ID: "red", IfRevision: -1}))(k, keys.ErrInvalid, "a negative revision")
	same(k, must(k.s.Team(k.ctx, "red"))(k), team, "a refused deletion changes nothing")
}

func teamNotFound(k *kit) {
	fails(k.s.Team(k.ctx, "red"))(k, keys.ErrNotFound, "a team that never was")
	fails(k.s.Team(k.ctx, ""))(k, keys.ErrInvalid, "no id")
}
