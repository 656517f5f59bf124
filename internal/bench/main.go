// Command bench measures Tallystick against ceilings in the same run: the bare
// commit of a row on the same database. Machines differ and are noisy, so the
// ratios count, not the figures beside them.
//
//	go run ./internal/bench [-run REGEX] [-json] [-for 5s] [-rounds 5]
//
// It starts its own Postgres (fsync on, synchronous_commit on) and SQLite files,
// runs each variant and its ceiling in turns, and takes medians. What is measured
// and why: internal/docs/performance.md.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime/pprof"
	"text/tabwriter"
	"time"
)

type options struct {
	run    *regexp.Regexp
	json   bool
	length time.Duration
	rounds int
	events int // of the large log
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := bench(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	pattern := flags.String("run", "", "only rows whose label matches (name, store and callers, such as admit/hot/postgres/32)")
	asJSON := flags.Bool("json", false, "one JSON object per row")
	length := flags.Duration("for", 5*time.Second, "how long each round of each side runs")
	profile := flags.String("cpuprofile", "", "write a CPU profile of this process to the file")
	rounds := flags.Int("rounds", 5, "how many rounds; medians are taken")
	events := flags.Int("events", 1_000_000, "how many events the large log of eventlog/tail-page has")
	if err := flags.Parse(args); err != nil {
		return err
	}
	re, err := regexp.Compile(*pattern)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	if *length < 100*time.Millisecond || *rounds < 1 {
		return errors.New("-for must be at least 100ms and -rounds at least 1")
	}
	o := options{run: re, json: *asJSON, length: *length, rounds: *rounds, events: max(1000, *events)}
	if *profile != "" {
		file, err := os.Create(*profile)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		if err := pprof.StartCPUProfile(file); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	env := &environment{options: o}
	defer env.close()
	table := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', tabwriter.AlignRight)
	if !o.json {
		fmt.Fprintln(table, "name\tstore\tcallers\tops/s\tp50 µs\tp99 µs\tceiling\tceiling/s\tratio\tWAL B/op\tallocs/op\t")
	}
	ran := 0
	for _, r := range rows() {
		if !re.MatchString(r.label()) {
			continue
		}
		ran++
		result, err := r.measure(ctx, env)
		if err != nil {
			return fmt.Errorf("%s: %w", r.label(), err)
		}
		if o.json {
			if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%.0f\t%.0f\t%.0f\t%s\t%.0f\t%.2f\t%.0f\t%.0f\t\n", result.Name, result.Store, result.Callers,
			result.Ops, result.P50, result.P99, result.Ceiling, result.CeilingOps, result.Ratio, result.WAL, result.Allocs)
		if err := table.Flush(); err != nil {
			return err
		}
	}
	if ran == 0 {
		return fmt.Errorf("no row matches -run %q", *pattern)
	}
	return nil
}

// result is what one row prints.
type result struct {
	Name       string  `json:"name"`
	Store      string  `json:"store"`
	Callers    int     `json:"callers"`
	Gateways   int     `json:"gateways"`
	Ops        float64 `json:"ops_per_s"`
	P50        float64 `json:"p50_us"`
	P99        float64 `json:"p99_us"`
	Ceiling    string  `json:"ceiling"`
	CeilingOps float64 `json:"ceiling_ops_per_s"`
	Ratio      float64 `json:"ratio"`
	WAL        float64 `json:"wal_bytes_per_op"`
	Allocs     float64 `json:"allocs_per_op"`
}
