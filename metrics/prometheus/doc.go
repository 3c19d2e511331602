// Package prometheus has the numbers of a limiter for Prometheus: decisions by
// rule and outcome, how long they take, and the conditions of the promises.
//
//	decisions := abacusmetrics.NewDecisions()
//	lim, err := limiter.New(c, limiter.Config{Rules: rules, Observe: decisions.Observe})
//	registry.MustRegister(decisions, abacusmetrics.Conditions(lim))
//
// The package has the name of the client's package, so that one of both needs
// another name in the import.
//
// Labels are an event, a kind of feature and an outcome, which are words of rules
// and of package limiter: no feature, no limit and no text of an error is ever a
// label, and there are no more series than events, kinds and outcomes of the rules
// that the process has had. Where a process has several limiters, registries of
// prometheus.WrapRegistererWith keep their series apart.
//
// dashboard.json is a dashboard for Grafana and alerts.yaml has rules for alarms,
// of these metrics. docs/operating.md says what to do about an alarm.
package prometheus
