// Reads a log as OpenTelemetry's collector does, with the packages of its receiver `filelog`.
//
//	collector FILE LINES <operators.yaml
//
// sends FILE through the operators, as they stand in the configuration of a collector, and prints each of its so many
// lines as one JSON object of time, severity, body and attributes. It fails where a line is missing after a minute.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/stanza/entry"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/stanza/operator"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/stanza/operator/helper"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/stanza/operator/input/file"
	_ "github.com/open-telemetry/opentelemetry-collector-contrib/pkg/stanza/operator/parser/jsonparser"
	_ "github.com/open-telemetry/opentelemetry-collector-contrib/pkg/stanza/operator/transformer/move"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/stanza/pipeline"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.uber.org/zap"
	"go.yaml.in/yaml/v3"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: collector FILE LINES <operators.yaml")
	}
	lines, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	operators, err := operators(os.Stdin)
	if err != nil {
		return err
	}
	settings := componenttest.NewNopTelemetrySettings()
	if settings.Logger, err = zap.NewProduction(); err != nil {
		return err
	}
	input := file.NewConfig()
	input.Include, input.StartAt = []string{args[0]}, "beginning"
	output, err := newOutput(settings, lines)
	if err != nil {
		return err
	}
	built, err := pipeline.Config{
		Operators:     append([]operator.Config{operator.NewConfig(input)}, operators...),
		DefaultOutput: output,
	}.Build(settings)
	if err != nil {
		return err
	}
	if err := built.Start(nothing{}); err != nil {
		return err
	}
	defer built.Stop()
	printed := json.NewEncoder(os.Stdout)
	late := time.After(time.Minute)
	for line := range lines {
		select {
		case found := <-output.found:
			if err := printed.Encode(map[string]any{
				"time":       found.Timestamp.UTC().Format(time.RFC3339Nano),
				"severity":   found.Severity.String(),
				"body":       found.Body,
				"attributes": found.Attributes,
			}); err != nil {
				return err
			}
		case <-late:
			return fmt.Errorf("%d lines of %d came through", line, lines)
		}
	}
	return nil
}

func operators(from io.Reader) ([]operator.Config, error) {
	text, err := io.ReadAll(from)
	if err != nil {
		return nil, err
	}
	var list []any
	if err := yaml.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	var read struct {
		Operators []operator.Config `mapstructure:"operators"`
	}
	err = confmap.NewFromStringMap(map[string]any{"operators": list}).Unmarshal(&read)
	return read.Operators, err
}

// output hands on what arrives.
type output struct {
	helper.OutputOperator
	found chan *entry.Entry
}

func newOutput(settings component.TelemetrySettings, lines int) (*output, error) {
	config := helper.NewOutputConfig("end", "end")
	end, err := config.Build(settings)
	return &output{OutputOperator: end, found: make(chan *entry.Entry, lines)}, err
}

func (o *output) Process(_ context.Context, one *entry.Entry) error {
	o.found <- one
	return nil
}

func (o *output) ProcessBatch(ctx context.Context, all []*entry.Entry) error {
	var failed error
	for _, one := range all {
		failed = errors.Join(failed, o.Process(ctx, one))
	}
	return failed
}

// nothing is remembered: each run reads the file from its beginning.
type nothing struct{}

func (nothing) Get(context.Context, string) ([]byte, error)        { return nil, nil }
func (nothing) Set(context.Context, string, []byte) error          { return nil }
func (nothing) Delete(context.Context, string) error               { return nil }
func (nothing) Batch(context.Context, ...*storage.Operation) error { return nil }
