// Scrapes a fedqd as Prometheus does, with Prometheus' own scrape manager, storage, query language and rules, and the checks of
// `promtool check metrics` and `promtool check rules`.
//
//	prometheus URL SECONDS RULES QUERY...
//
// scrapes each second for so long, in each of the formats that Prometheus can be told to ask for. It fails where a scrape does,
// or a rule of promtool's, or where a query that is asked of what was scraped yields nothing. Of each alert in the file RULES
// it prints a line: whether its expression yields something.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/tsdb"
)

// What may stand in a scrape's configuration, by the value of the label `format`.
var formats = map[string]string{
	"default":          "",
	"nativeHistograms": "scrape_native_histograms: true",
	"text0.0.4":        "scrape_protocols: [PrometheusText0.0.4]",
	"text1.0.0":        "scrape_protocols: [PrometheusText1.0.0]",
	"openMetrics1.0.0": "scrape_protocols: [OpenMetricsText1.0.0]",
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 3 {
		return errors.New("usage: prometheus URL SECONDS RULES QUERY...")
	}
	target, err := url.Parse(args[0])
	if err != nil {
		return err
	}
	seconds, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	promQL := parser.NewParser(parser.Options{})
	rules, broken := rulefmt.ParseFile(args[2], false, model.UTF8Validation, promQL, slog.Default())
	if err := errors.Join(broken...); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "prometheus")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	db, err := tsdb.Open(dir, nil, nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := scrapeFor(time.Duration(seconds)*time.Second, target, db); err != nil {
		return err
	}
	if err := lint(target); err != nil {
		return err
	}
	queries := append([]string{
		fmt.Sprintf("count(min_over_time(up[%ds]) == 1) == %d", seconds, len(formats)),
		fmt.Sprintf("count(count_over_time(up[%ds]) >= %d) == %d", seconds+5, seconds*3/4, len(formats)),
		fmt.Sprintf("count(scrape_samples_scraped > 100) == %d", len(formats)),
	}, args[3:]...)
	var failed error
	for _, query := range queries {
		found, err := ask(db, query)
		if err == nil && len(found) == 0 {
			err = errors.New("nothing was found")
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", query, err))
		}
	}
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			found, err := ask(db, rule.Expr)
			if err != nil {
				failed = errors.Join(failed, fmt.Errorf("%s: %w", rule.Alert, err))
			}
			fmt.Printf("alert %s %t\n", rule.Alert, len(found) > 0)
		}
	}
	return failed
}

func scrapeFor(long time.Duration, target *url.URL, db *tsdb.DB) error {
	var text strings.Builder
	fmt.Fprint(&text, "global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n")
	for format, more := range formats {
		fmt.Fprintf(&text, "- job_name: %s\n  metrics_path: %s\n", format, target.Path)
		fmt.Fprintf(&text, "  static_configs: [{targets: ['%s'], labels: {job: fedq, format: %s}}]\n", target.Host, format)
		if more != "" {
			fmt.Fprintf(&text, "  %s\n", more)
		}
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	loaded, err := config.Load(text.String(), logger)
	if err != nil {
		return err
	}
	options := &scrape.Options{DiscoveryReloadInterval: model.Duration(10 * time.Millisecond)}
	manager, err := scrape.NewManager(options, logger, nil, nil, db, prometheus.NewRegistry())
	if err != nil {
		return err
	}
	if err := manager.ApplyConfig(loaded); err != nil {
		return err
	}
	targets := make(map[string][]*targetgroup.Group)
	for _, job := range loaded.ScrapeConfigs {
		for _, found := range job.ServiceDiscoveryConfigs {
			targets[job.JobName] = append(targets[job.JobName], found.(discovery.StaticConfig)...)
		}
	}
	found := make(chan map[string][]*targetgroup.Group, 1)
	found <- targets
	ended := make(chan error, 1)
	go func() { ended <- manager.Run(found) }()
	select {
	case err := <-ended:
		return fmt.Errorf("the scrape manager ended: %w", err)
	case <-time.After(long):
	}
	for format, targets := range manager.TargetsActive() {
		for _, target := range targets {
			if err := target.LastError(); err != nil {
				return fmt.Errorf("%s: %w", format, err)
			}
		}
	}
	manager.Stop()
	return <-ended
}

// lint is what `promtool check metrics` does.
func lint(target *url.URL) error {
	answer, err := http.Get(target.String())
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	problems, err := promlint.New(answer.Body).Lint()
	for _, problem := range problems {
		err = errors.Join(err, fmt.Errorf("%s: %s", problem.Metric, problem.Text))
	}
	return err
}

func ask(db *tsdb.DB, text string) (promql.Vector, error) {
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 10_000_000, Timeout: 10 * time.Second})
	query, err := engine.NewInstantQuery(context.Background(), db, nil, text, time.Now())
	if err != nil {
		return nil, err
	}
	defer query.Close()
	return query.Exec(context.Background()).Vector()
}
