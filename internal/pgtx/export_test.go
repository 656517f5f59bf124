package pgtx

// Shorten replaces the bounds of an open transaction: a paused server cannot begin one with short ones.
func (t *Tx) Shorten(o Options) { t.opt = o.withDefaults() }
