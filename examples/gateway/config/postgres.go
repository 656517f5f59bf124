package config

import (
	"errors"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// Postgres is the database that the gateways of the profile shared have in common.
type Postgres struct {
	// DSN is a reference, as every secret: what it names is a URL or a line of
	// key=value pairs.
	DSN    Secret `yaml:"dsn"`
	Schema string `yaml:"schema"`
	// Namespace, when it is given, is the authority that the schema must be. `gateway
	// status` prints it: another database, whose policies may read the same, is refused.
	Namespace string `yaml:"namespace"`
	// Migrate lets serve create and update the tables. Otherwise it refuses older ones.
	Migrate        bool  `yaml:"migrate"`
	MaxConnections Whole `yaml:"max_connections"`
	// Each is timeouts.storage, and the first less than half of it, when left out.
	LockTimeout      Duration `yaml:"lock_timeout"`
	StatementTimeout Duration `yaml:"statement_timeout"`
	IdleTimeout      Duration `yaml:"idle_timeout"`
	CommitTimeout    Duration `yaml:"commit_timeout"`

	connections int64
	dsn         string
	unread      error // why there is no dsn
}

const (
	defaultSchema      = "tallystick"
	defaultConnections = 10
	maxConnections     = 1000
)

// ConnString is what DSN refers to, with target_session_attrs=read-write in it.
//
// Errors: *SecretError, of a configuration that was loaded for an operator's tool: it
// need not be able to read what only the gateway needs.
func (p *Postgres) ConnString() (string, error) { return p.dsn, p.unread }

// Connections is how many a gateway opens at most.
func (p *Postgres) Connections() int32 { return int32(p.connections) }

var (
	schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)
	uuid       = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
)

// checkShared checks what gateways that share a database need, and refuses what would
// let each of them count for itself.
func (c *Config) checkShared(k *checker) {
	if c.Storage.SQLite != "" {
		k.fault("storage.sqlite", "is for the profile local: behind several files, several gateways would each admit the whole of every limit; the profile shared needs storage.postgres")
	}
	if c.Journal.there {
		k.fault("journal", "belongs to the profile node: the profile shared has one account for all gateways, and money in a journal beside it could be spent twice")
	}
	if len(c.Policies.Files) > 0 {
		k.fault("policies.files", "are for the profile local: the gateways of the profile shared have their policies in the database, see `gateway policies apply`")
	}
	if c.TopologyVersion == "" {
		k.fault("topology_version", "is missing: upstreams and routes are those of this file, on every gateway; give them a version and change it with them")
	} else {
		k.name("topology_version", c.TopologyVersion)
	}
	p := c.Storage.Postgres
	if p == nil {
		k.fault("storage.postgres", "is missing: the gateways of the profile shared have one database in common")
		return
	}
	p.check(k, c.Timeouts.Storage.Duration)
}

func (p *Postgres) check(k *checker, storage time.Duration) {
	const at = "storage.postgres"
	read, err := ReadSecret(at+".dsn", p.DSN.reference, k.folder, k.env)
	if err == nil {
		p.DSN = read
		if p.dsn, err = ReadWrite(read.Reveal()); err != nil {
			err = &SecretError{Path: at + ".dsn", Why: "what it refers to " + err.Error()}
		}
	}
	if p.unread = err; err != nil && !k.blind {
		k.faults = append(k.faults, err)
	}
	if p.Schema == "" {
		p.Schema = defaultSchema
	}
	if !schemaName.MatchString(p.Schema) {
		k.fault(at+".schema", "must be a name of lower-case letters, digits and underscores")
	}
	if p.Namespace != "" && !uuid.MatchString(p.Namespace) {
		k.fault(at+".namespace", "must be a UUID, as `gateway status` prints it")
	}
	p.connections = defaultConnections
	if n := k.whole(at+".max_connections", p.MaxConnections); n != nil {
		p.connections = *n
	}
	if p.connections < 2 || p.connections > maxConnections {
		k.fault(at+".max_connections", "must be between 2 and %d", maxConnections)
	}
	for _, t := range []struct {
		name     string
		d        *Duration
		fallback time.Duration
	}{
		{"lock_timeout", &p.LockTimeout, storage * 2 / 5},
		{"statement_timeout", &p.StatementTimeout, storage},
		{"idle_timeout", &p.IdleTimeout, storage},
		{"commit_timeout", &p.CommitTimeout, storage},
	} {
		if t.d.Duration == 0 {
			t.d.Duration = max(t.fallback, time.Millisecond)
		}
		if t.d.Duration < time.Millisecond || t.d.Duration > time.Minute {
			k.fault(at+"."+t.name, "must be a duration between 1ms and 1m0s")
		}
	}
}

var (
	errNoDSN     = errors.New("is no connection string: write postgres://user:password@host:5432/database, or host=... user=... pairs")
	errNotToRead = errors.New("asks for target_session_attrs other than read-write: a gateway that met a standby would decide by what was true some time ago")
)

const sessionAttrs, readWrite = "target_session_attrs", "read-write"

// ReadWrite returns a connection string that reaches only a server which takes writes.
// Errors: one that repeats nothing of the string.
func ReadWrite(dsn string) (string, error) {
	if strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://") {
		u, err := url.Parse(dsn)
		if err != nil {
			return "", errNoDSN
		}
		query, err := url.ParseQuery(u.RawQuery)
		if err != nil {
			return "", errNoDSN
		}
		if given, is := query[sessionAttrs]; is {
			for _, v := range given {
				if v != readWrite {
					return "", errNotToRead
				}
			}
			return dsn, nil
		}
		// The text stays as it is: not every URL is written again as it was read.
		dsn, fragment, _ := strings.Cut(dsn, "#")
		switch _, asked, found := strings.Cut(dsn, "?"); {
		case !found:
			dsn += "?"
		case asked != "":
			dsn += "&"
		}
		if dsn += sessionAttrs + "=" + readWrite; fragment != "" {
			dsn += "#" + fragment
		}
		return dsn, nil
	}
	given, err := pairs(dsn)
	if err != nil {
		return "", err
	}
	wanted := false
	for _, p := range given {
		if p[0] == sessionAttrs {
			if p[1] != readWrite {
				return "", errNotToRead
			}
			wanted = true
		}
	}
	if wanted {
		return dsn, nil
	}
	return sessionAttrs + "=" + readWrite + " " + dsn, nil
}

const space = " \t\n\r\v\f"

// pairs reads key=value pairs as libpq does: values may be quoted, and \ escapes.
func pairs(dsn string) (out [][2]string, err error) {
	rest := strings.TrimLeft(dsn, space)
	if rest == "" {
		return nil, errNoDSN
	}
	for rest != "" {
		key, behind, found := strings.Cut(rest, "=")
		key = strings.TrimRight(key, space)
		if !found || key == "" || strings.ContainsAny(key, space+`'\`) {
			return nil, errNoDSN
		}
		rest = strings.TrimLeft(behind, space)
		quoted := strings.HasPrefix(rest, "'")
		if quoted {
			rest = rest[1:]
		}
		var value strings.Builder
		i, closed := 0, !quoted
		for ; i < len(rest); i++ {
			c := rest[i]
			if quoted && c == '\'' {
				closed = true
				i++
				break
			}
			if !quoted && strings.IndexByte(space, c) >= 0 {
				break
			}
			if c == '\\' {
				if i++; i == len(rest) {
					return nil, errNoDSN
				}
				c = rest[i]
			}
			value.WriteByte(c)
		}
		if !closed {
			return nil, errNoDSN
		}
		out = append(out, [2]string{key, value.String()})
		if rest = rest[i:]; rest != "" && strings.IndexByte(space, rest[0]) < 0 {
			return nil, errNoDSN
		}
		rest = strings.TrimLeft(rest, space)
	}
	return out, nil
}
