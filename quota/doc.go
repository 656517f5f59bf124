// Package quota holds what is limited per calendar window: the windows, and the
// account that counts in one of them. It has no clock and does no I/O; the one
// exception is that a zone other than UTC is read from the zone database the first
// time it is used. A program that runs where there is none imports time/tzdata.
//
// # Windows
//
// A [Calendar] supplies boundaries: every day, week or month at a reset hour, in UTC or
// in an IANA zone. Windows are half open and tile time: each one starts where the one
// before it ended, so a day is 23 or 25 hours long when the clocks change. A
// boundary whose local time does not exist is at the moment of the change; one
// whose local time exists twice is the first of the two. A date that a zone skipped
// has no boundary of its own. A month's boundary on a day that the month lacks is on the
// month's last day.
//
// The caller stores the current [Window] and asks [Calendar.Roll] for the next one.
// Whether a window is over is decided by its stored end alone, so that neither an edit
// of the calendar nor two processes with different zone databases can end a window
// early or start it twice. An edit acts at the next boundary. Should the new boundaries
// lie less than half a period after the old one, the first of them is passed over:
// otherwise an edit would mint a short window with an allowance of its own.
//
// Nothing is ever reset. A new window has an account of its own, and a settlement that
// comes late goes to the account of the window in which it was admitted.
//
// # Accounts
//
// An [Account] is a plain value. Its methods return the account after the change, or
// an error and the account as it was. All arithmetic is checked: what does not fit or was
// never there is an error, not clamped.
//
//	reserved  --Settle-->  consumed (what was used, also beyond the bound)
//	reserved  --Cancel-->  nothing
//	reserved  --Hold---->  uncertain  --Resolve-->  consumed
//
// No Reserve leaves consumed + uncertain + reserved + granted above the limit that
// it was given. An overrun or a lowered limit can leave the sum above it; then nothing
// more is reserved.
//
// Source: internal/docs/architecture.md "State"; ADR-045 "Accounts, windows and reports".
package quota
