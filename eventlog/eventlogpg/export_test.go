package eventlogpg

// Statements are the ones whose plans are checked, by name.
func (s *Store) Statements() map[string]string {
	return map[string]string{
		"insert": s.sql.insert, "insert one": s.sql.insertOne, "record": s.sql.record, "ids": s.sql.ids, "versions": s.sql.versions, "stream": s.sql.stream, "view": s.sql.view,
		"fresh": s.sql.fresh, "late": s.sql.late, "old": s.sql.old, "next": s.sql.next, "newest": s.sql.newest,
		"keep versions": s.sql.keepVersions, "delete old": s.sql.deleteOld, "asides": s.sql.asides,
	}
}
