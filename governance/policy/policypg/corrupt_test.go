package policypg_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/governance/policy"
	"github.com/tallystick-go/tallystick/governance/policy/policypg"
)

// Whatever happens to the rows, nothing but the set that was stored is ever read as one.
func TestDamageIsNeverASet(t *testing.T) {
	ctx := t.Context()
	for name, damage := range map[string]string{
		"no JSON":                    `update {{s}}.policy_documents set document = 'x' where name = 'a'`,
		"cut":                        `update {{s}}.policy_documents set document = left(document, -1) where name = 'a'`,
		"a field of a newer version": `update {{s}}.policy_documents set document = replace(document, '"spec":{', '"spec":{"novel":1,') where name = 'a'`,
		"another limit":              `update {{s}}.policy_documents set document = replace(document, '"limitTokens":1', '"limitTokens":9') where name = 'a'`,
		"another name":               `update {{s}}.policy_documents set name = 'z' where name = 'a'`,
		"twice":                      `insert into {{s}}.policy_documents select 'z', document, 0 from {{s}}.policy_documents where name = 'a'`,
		"a document less":            `delete from {{s}}.policy_documents where name = 'a'`,
		"no documents":               `delete from {{s}}.policy_documents`,
		"another generation":         `update {{s}}.policy_state set generation = sha256('x')`,
		"another zone database":      `update {{s}}.policy_documents set document = replace(document, '"period":"day"', '"period":"day","timezone":"Mars/Olympus"') where name = 'a'`,
	} {
		t.Run(name, func(t *testing.T) {
			s, db := fresh(t)
			was := apply(t, s, document("a", 1), document("b", 2))
			_, err := db.Pool.Exec(ctx, strings.ReplaceAll(damage, "{{s}}", db.Schema))
			require.NoError(t, err)
			_, err = s.Load(ctx)
			require.ErrorIs(t, err, policy.ErrCorrupt)
			var corrupt *policy.CorruptError
			require.True(t, errors.As(err, &corrupt))
			require.Equal(t, was.Revision, corrupt.Now.Revision)

			// An edit of one document must not make the damage the truth.
			for _, expect := range []policy.Generation{was.Generation, corrupt.Now.Generation} {
				_, err = s.Apply(ctx, policy.Apply{Documents: []policy.Document{document("c", 3)}, Expect: expect})
				require.ErrorIs(t, err, policy.ErrCorrupt)
				_, err = s.Delete(ctx, policy.Delete{Names: []string{"b"}, Expect: expect})
				require.ErrorIs(t, err, policy.ErrCorrupt)
			}
			// A whole set does, when whoever puts it knows what it replaces.
			whole := policy.Replace{Documents: []policy.Document{document("c", 3)}, Expect: policy.Generation{1}}
			_, err = s.Replace(ctx, whole)
			require.ErrorIs(t, err, policy.ErrConflict)
			whole.Expect = corrupt.Now.Generation
			now, err := s.Replace(ctx, whole)
			require.NoError(t, err)
			require.Equal(t, was.Revision+1, now.Revision)
			require.Equal(t, was.Namespace, now.Namespace)
			loaded, err := s.Load(ctx)
			require.NoError(t, err)
			require.Equal(t, now.Mark, loaded.Mark)
			require.Equal(t, 1, loaded.Set.Len())
		})
	}
}

func TestWithoutItsStateNothingIsRead(t *testing.T) {
	ctx := t.Context()
	s, db := fresh(t)
	was := apply(t, s, document("a", 1))
	_, err := db.Pool.Exec(ctx, "delete from "+db.Schema+".policy_state")
	require.NoError(t, err)
	_, err = s.Load(ctx)
	require.ErrorIs(t, err, policy.ErrCorrupt)
	_, err = s.Mark(ctx)
	require.ErrorIs(t, err, policy.ErrCorrupt)
	_, err = s.Replace(ctx, policy.Replace{Expect: was.Generation})
	require.ErrorIs(t, err, policy.ErrCorrupt, "there is no generation to compare with")
	b := &pgx.Batch{}
	policypg.QueueMark(b, db.Schema, func(policy.Mark) { t.Error("a mark out of nothing") })
	require.ErrorIs(t, db.Pool.SendBatch(ctx, b).Close(), policy.ErrCorrupt)
}

// A document that somebody wrote in another way means the same, and is read.
func TestAnotherWayToWriteIt(t *testing.T) {
	ctx := t.Context()
	s, db := fresh(t)
	was := apply(t, s, document("a", 1))
	_, err := db.Pool.Exec(ctx, `update `+db.Schema+`.policy_documents set document = replace(document, ':', ' : ')`)
	require.NoError(t, err)
	now, err := s.Load(ctx)
	require.NoError(t, err)
	require.Equal(t, was.Mark, now.Mark)
}

func TestMigrations(t *testing.T) {
	ctx := t.Context()
	s, db := fresh(t)
	was := apply(t, s, document("a", 1))
	require.NoError(t, s.Migrate(ctx), "again")
	now, err := s.Load(ctx)
	require.NoError(t, err)
	require.Equal(t, was.Mark, now.Mark)

	other, err := policypg.New(db.Pool, &policypg.Options{Schema: db.Schema + "_none"})
	require.NoError(t, err)
	require.ErrorIs(t, other.Check(ctx), policypg.ErrOlder)
}

func TestOutageIsUnavailable(t *testing.T) {
	ctx := t.Context()
	s, db := fresh(t)
	was := apply(t, s, document("a", 1))
	pool := db.Connect(t, nil)
	s, err := policypg.New(pool, &policypg.Options{Schema: db.Schema})
	require.NoError(t, err)
	pool.Close()
	_, err = s.Load(ctx)
	require.ErrorIs(t, err, policy.ErrUnavailable)
	_, err = s.Replace(ctx, policy.Replace{Expect: was.Generation})
	require.ErrorIs(t, err, policy.ErrUnavailable)
	require.NotErrorIs(t, err, policy.ErrUnconfirmed)
}
