package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Node is how a gateway of the profile node stands at a scrape.
type Node struct {
	Synced   bool      // its authority has answered, and has not fenced it
	LastSync time.Time // zero: never
	Failures int       // heartbeats since then
	Poisoned bool
	Money    []NodeMoney
}

// NodeMoney is what the node holds of one budget, in microUSD. The names are those of the
// authority's policies.
type NodeMoney struct {
	Policy, Rule                        string
	Free, Reserved, Consumed, Uncertain int64
}

// nodeTime bounds the reading of a journal for a scrape.
const nodeTime = 5 * time.Second

// nodes asks at every scrape.
type nodes struct {
	ask                         func(context.Context) (Node, error)
	synced, age, failures, sick *prometheus.Desc
	money                       *prometheus.Desc
}

// Node adds what a node tells of itself.
func (m *Metrics) Node(ask func(context.Context) (Node, error)) {
	m.registry.MustRegister(&nodes{
		ask:      ask,
		synced:   prometheus.NewDesc("tallystick_gateway_node_synced", "1 once the authority has answered this boot, and while it has not fenced it.", nil, nil),
		age:      prometheus.NewDesc("tallystick_gateway_node_last_sync_age_seconds", "Time since the last heartbeat that was answered was sent.", nil, nil),
		failures: prometheus.NewDesc("tallystick_gateway_node_heartbeats_unanswered", "Heartbeats since then.", nil, nil),
		sick:     prometheus.NewDesc("tallystick_gateway_node_poisoned", "1 while an overrun waits for an operator.", nil, nil),
		money: prometheus.NewDesc("tallystick_gateway_node_microusd",
			"What the node holds of budgets: free and reserved of open grants, consumed and uncertain also of those whose end is not receipted.", []string{"policy", "rule", "state"}, nil),
	})
}

// Describe implements prometheus.Collector.
func (n *nodes) Describe(to chan<- *prometheus.Desc) {
	for _, d := range [...]*prometheus.Desc{n.synced, n.age, n.failures, n.sick, n.money} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (n *nodes) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), nodeTime)
	defer cancel()
	now, err := n.ask(ctx)
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	gauge(n.synced, flag(now.Synced))
	gauge(n.failures, float64(now.Failures))
	if !now.LastSync.IsZero() {
		gauge(n.age, time.Since(now.LastSync).Seconds())
	}
	if err != nil {
		return // what is in a journal that cannot be read, nobody knows
	}
	gauge(n.sick, flag(now.Poisoned))
	type budget struct{ policy, rule string }
	sums := map[budget]*[4]float64{} // a budget may be there in two windows
	for _, m := range now.Money {
		b := budget{m.Policy, m.Rule}
		if sums[b] == nil {
			sums[b] = new([4]float64)
		}
		for i, v := range [...]int64{m.Free, m.Reserved, m.Consumed, m.Uncertain} {
			sums[b][i] += float64(v)
		}
	}
	for b, sum := range sums {
		for i, state := range [...]string{"free", "reserved", "consumed", "uncertain"} {
			gauge(n.money, sum[i], b.policy, b.rule, state)
		}
	}
}

func flag(set bool) float64 {
	if set {
		return 1
	}
	return 0
}
