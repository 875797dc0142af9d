// Reads what a fedqd tells at /metrics as Prometheus does, with Prometheus' own packages: the formats it asks for, its
// parser, its storage, its query language, and the rules of `promtool check metrics`.
//
//	prometheus URL SECONDS QUERY...
//
// scrapes each second for so long in each of the formats, and fails where the parser or the rules do, or a query that is
// asked of what was scraped yields nothing.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/tsdb"
)

// What Prometheus 3 asks for, by the protocol that its configuration names.
var formats = map[string]string{
	"PrometheusText0.0.4": "text/plain;version=0.0.4;q=0.6,*/*;q=0.1",
	"PrometheusText1.0.0": "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
	"OpenMetricsText1.0.0": "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6," +
		"application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
	"default": "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6," +
		"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5," +
		"application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3," +
		"text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return errors.New("usage: prometheus URL SECONDS QUERY...")
	}
	seconds, err := strconv.Atoi(args[1])
	if err != nil {
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
	for name, accept := range formats {
		samples, largest := 0, 0
		for began := time.Now(); samples == 0 || time.Since(began) < time.Duration(seconds)*time.Second/time.Duration(len(formats)); {
			body, kind, err := scrape(args[0], accept)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			found, err := store(db, name, body, kind)
			if err != nil {
				return fmt.Errorf("%s, as %s: %w", name, kind, err)
			}
			samples, largest = samples+found, max(largest, len(body))
			time.Sleep(time.Second)
		}
		fmt.Printf("%s: %d samples, %d bytes at most\n", name, samples, largest)
	}
	if err := lint(args[0]); err != nil {
		return err
	}
	return ask(db, args[2:])
}

func scrape(url, accept string) ([]byte, string, error) {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return nil, "", err
	}
	request.Header.Set("Accept", accept)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, "", err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, "", errors.New(answer.Status)
	}
	body, err := io.ReadAll(answer.Body)
	return body, answer.Header.Get("Content-Type"), err
}

// store takes the samples of one scrape in, and says how many there were.
func store(db *tsdb.DB, format string, body []byte, kind string) (int, error) {
	parser, err := textparse.New(body, kind, labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		return 0, err
	}
	appender := db.Appender(context.Background())
	now, samples := time.Now().UnixMilli(), 0
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			return samples, appender.Commit()
		}
		if err != nil {
			return 0, errors.Join(err, appender.Rollback())
		}
		if entry != textparse.EntrySeries {
			continue
		}
		var found labels.Labels
		parser.Labels(&found)
		_, _, value := parser.Series()
		series := labels.NewBuilder(found).Set("job", "fedq").Set("format", format).Labels()
		if _, err := appender.Append(0, series, now, value); err != nil {
			return 0, errors.Join(err, appender.Rollback())
		}
		samples++
	}
}

// lint is what `promtool check metrics` does.
func lint(url string) error {
	body, _, err := scrape(url, formats["PrometheusText0.0.4"])
	if err != nil {
		return err
	}
	problems, err := promlint.New(bytes.NewReader(body)).Lint()
	for _, problem := range problems {
		err = errors.Join(err, fmt.Errorf("%s: %s", problem.Metric, problem.Text))
	}
	return err
}

func ask(db *tsdb.DB, queries []string) error {
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1_000_000, Timeout: 10 * time.Second})
	var failed error
	for _, text := range queries {
		query, err := engine.NewInstantQuery(context.Background(), db, nil, text, time.Now())
		if err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
		result := query.Exec(context.Background())
		vector, err := result.Vector()
		if err == nil && len(vector) == 0 {
			err = errors.New("nothing was found")
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", text, err))
		}
		query.Close()
	}
	return failed
}
