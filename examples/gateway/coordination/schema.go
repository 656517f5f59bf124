package coordination

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
)

// ErrOlder: the tables are not there.
var ErrOlder = errors.New("coordination: the tables of coordinated gateways are missing or older than this program: run serve with -migrate once")

// tables are what coordinated gateways share beside keys, policies and accounts. While two versions of the gateway run, both
// use them: columns are added with a default, and none is taken away. Instants are microseconds since 1970.
const tables = `
create table if not exists {{schema}}.gateway_suspensions (
	subject text   collate "C" not null primary key,
	version bigint not null,
	record  text   not null
);
create table if not exists {{schema}}.gateway_upstreams (
	name       text   collate "C" not null primary key,
	version    bigint not null,
	record     text   not null,
	expires_us bigint not null,
	gone_us    bigint
);
create index if not exists gateway_upstreams_expire on {{schema}}.gateway_upstreams (expires_us) where gone_us is null;
create table if not exists {{schema}}.gateway_fleet_snapshots (
	at_us      bigint not null,
	generation bigint not null,
	registered bigint not null,
	healthy    bigint not null,
	unhealthy  bigint not null,
	primary key (at_us, generation)
);
`

var tableNames = []string{"gateway_suspensions", "gateway_upstreams", "gateway_fleet_snapshots"}

// migrate makes the tables; several gateways may do so at once.
func (b *Base) migrate(ctx context.Context) error {
	err := pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended($1, 0))", "gateway coordination "+b.schema); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, strings.ReplaceAll(tables, "{{schema}}", b.schema))
		return err
	})
	return Scrub(err)
}

func (b *Base) check(ctx context.Context) error {
	var there int
	err := b.pool.QueryRow(ctx, "select count(*) from pg_catalog.pg_tables where schemaname = $1 and tablename = any($2)", b.options.Schema, tableNames).Scan(&there)
	if err != nil {
		return Scrub(err)
	}
	if there < len(tableNames) {
		return ErrOlder
	}
	return nil
}
