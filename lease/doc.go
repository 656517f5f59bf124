// Package lease gives one process at a time the right to do something: a row in a
// shared database with a tenure and a generation. It decides and keeps no data;
// leasepg keeps it in Postgres, leasesqlite in a file for the processes of one machine.
//
// A tenure alone makes nobody safe. A holder that was stopped past its end cannot know
// that time has passed, and wakes to finish what undoes its successor's work. So every
// acquisition raises the generation, and whatever must not be undone is written in a
// transaction that an adapter's Fence has let through: a stale generation matches nothing.
//
//	keeper, err := lease.NewKeeper(leaser, []string{"sweep"}, nil) // 15 s, renewed every 5 s, given up after 10 s
//	defer keeper.Close(ctx)                                        // hands over when the work has stopped
//
//	for range every.C { // asked in each cycle, not once at the start
//		err := keeper.Do(ctx, "sweep", func(ctx context.Context, held lease.Lease) error {
//			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//				if err := leaser.Fence(ctx, tx, held); err != nil {
//					return err // lost: nothing is written
//				}
//				_, err := tx.Exec(ctx, "delete from servers where gone")
//				return err
//			})
//		})
//		if err != nil && !errors.Is(err, lease.ErrNotHeld) { ... }
//	}
//
// What is exact and what is belief: in the database there is never more than one holder.
// In belief there can be two, for as long as a process is stopped and has not noticed; Fence
// is what keeps the second from doing harm, and it covers what is written to that database. Hand
// Lease.Generation to other systems that can compare it. What can do neither should be harmless when done twice.
//
// Identities are minted per process: a configured one would be shared by replicas of one configuration.
//
// Source: ADR-020 "Management is leased; serving is not".
package lease
