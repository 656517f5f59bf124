package pgwire

// Everywhere lists the faults that a run which sent these messages can meet: each message of
// either side lost, and each that a client waits behind let through and then its answer lost.
func Everywhere(seen []Message, then End, gone bool) (list []Fault) {
	var counts [Server + 1]int
	for i, m := range seen {
		counts[m.From]++
		f := Fault{From: m.From, At: counts[m.From], Then: then, Gone: gone}
		list = append(list, f)
		if m.From == Client && (i+1 == len(seen) || seen[i+1].From == Server) {
			f.Pass = true
			list = append(list, f)
		}
	}
	return list
}

// Before counts the messages of either side that were read before a client began to send what ends
// with the last execution of a statement. A fault at one of them means that the server was never asked for it,
// and that the client knows.
func Before(seen []Message, sql string) (before [Server + 1]int) {
	var counts, flush [Server + 1]int
	for i, m := range seen {
		if m.From == Client && (i == 0 || seen[i-1].From == Server) {
			flush = counts
		}
		counts[m.From]++
		if m.From == Client && m.SQL == sql {
			before = flush
		}
	}
	return before
}

// Executed counts the executions of statements that reached the server and that the function picks.
func Executed(seen []Message, picks func(sql string) bool) (n int) {
	for _, m := range seen {
		if m.From == Client && m.SQL != "" && !m.Lost && picks(m.SQL) {
			n++
		}
	}
	return n
}
