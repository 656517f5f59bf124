// Package quota holds what is limited per calendar window: the windows, and the
// account that counts in one of them. It is pure: no I/O, no clock of its own.
//
// A Calendar supplies the ends of windows. The first window is the one around the
// clock; each next one starts where the last one ended (Roll), so that neither an
// edit of a zone nor another version of the zone database can mint a window.
//
// An Account is a plain value. Its methods return the account after the change,
// or an error and nothing.
//
// Source: design "Quotas and budgets", ADR-045 "Accounts, windows and reports".
package quota
