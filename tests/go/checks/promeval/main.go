// SPDX-License-Identifier: Apache-2.0

// Command promeval evaluates alert rules or a dashboard as Prometheus does, with what targets served.
//
//	promeval FILE DIR...
//
// Each DIR is one moment, five minutes after the one before. It has a file for each target that Prometheus scraped then: its name
// becomes the label `instance`, its content is the response of the target, with its headers. Prometheus' own code parses the metrics,
// as their Content-Type says, and evaluates each expression at the last moment.
//
// For rules (.yaml) a line is printed for each alert that fires: its name and its summary. The time that an alert has to hold (`for`)
// does not count. A label that an annotation names and the alert lacks is an error.
//
// For a dashboard (.json) a line is printed for each query: the number of series that it finds, and the title of its panel.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/template"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"

	"rdmanet/tests/go/checks/monitoring"
)

const interval = 5 * time.Minute

// sample is a number at a time in milliseconds.
type sample struct {
	at    int64
	value float64
}

func (s sample) T() int64                      { return s.at }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.value }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

// series is all that was scraped: the samples of each set of labels.
type series struct {
	labels  map[string]labels.Labels
	samples map[string][]chunks.Sample
}

// scrape adds what the target `instance` served at the time `at`.
func (all *series) scrape(target io.Reader, instance string, at time.Time) error {
	reader, err := monitoring.Metrics(target)
	if err != nil {
		return err
	}
	for {
		entry, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if entry != textparse.EntrySeries {
			continue
		}
		var of labels.Labels
		reader.Labels(&of)
		_, _, value := reader.Series()
		of = labels.NewBuilder(of).Set("instance", instance).Set("job", "rdmanet").Labels()
		key := of.String()
		all.labels[key] = of
		all.samples[key] = append(all.samples[key], sample{at.UnixMilli(), value})
	}
}

// found is the series of one selector.
type found struct {
	list []storage.Series
	next int
}

func (f *found) Next() bool                      { f.next++; return f.next <= len(f.list) }
func (f *found) At() storage.Series              { return f.list[f.next-1] }
func (*found) Err() error                        { return nil }
func (*found) Warnings() annotations.Annotations { return nil }

// Querier makes `all` a storage.Queryable.
func (all *series) Querier(_, _ int64) (storage.Querier, error) {
	selects := func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		var list []storage.Series
		for key, of := range all.labels {
			matches := true
			for _, matcher := range matchers {
				matches = matches && matcher.Matches(of.Get(matcher.Name))
			}
			if matches {
				list = append(list, storage.NewListSeries(of, all.samples[key]))
			}
		}
		sort.Slice(list, func(i, j int) bool { return labels.Compare(list[i].Labels(), list[j].Labels()) < 0 })
		return &found{list: list}
	}
	return &storage.MockQuerier{SelectMockFunction: selects}, nil
}

// read scrapes the targets of all moments.
func read(moments []string, at func(int) time.Time) (*series, error) {
	all := &series{map[string]labels.Labels{}, map[string][]chunks.Sample{}}
	for number, moment := range moments {
		targets, err := os.ReadDir(moment)
		if err != nil {
			return nil, err
		}
		for _, target := range targets {
			file := filepath.Join(moment, target.Name())
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			if err := all.scrape(bytes.NewReader(text), target.Name(), at(number)); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	return all, nil
}

// expand replaces what an annotation says of the alert.
func expand(text, name string, of promql.Sample, now time.Time) (string, error) {
	data := template.AlertTemplateData(of.Metric.Map(), nil, "", of)
	definitions := "{{$labels := .Labels}}{{$value := .Value}}"
	at := model.TimeFromUnixNano(now.UnixNano())
	expander := template.NewTemplateExpander(
		context.Background(), definitions+text, name, data, at, nil, nil, []string{"missingkey=error"})
	return expander.Expand()
}

// evaluator knows what was scraped, and the last moment.
type evaluator struct {
	engine *promql.Engine
	all    *series
	now    time.Time
}

func (e evaluator) evaluate(expr string) (promql.Vector, error) {
	query, err := e.engine.NewInstantQuery(context.Background(), e.all, nil, expr, e.now)
	if err != nil {
		return nil, err
	}
	defer query.Close()
	found, err := query.Exec(context.Background()).Vector()
	if err != nil {
		return nil, err
	}
	// The result belongs to the query.
	return append(promql.Vector{}, found...), nil
}

// fire prints a line for each result of the rule.
func (e evaluator) fire(rule rulefmt.Rule) error {
	found, err := e.evaluate(rule.Expr)
	if err != nil {
		return err
	}
	for _, one := range found {
		for annotation, text := range rule.Annotations {
			line, err := expand(text, rule.Alert, one, e.now)
			if err != nil {
				return fmt.Errorf("annotation %s: %w", annotation, err)
			}
			if annotation == "summary" {
				fmt.Println(rule.Alert+":", strings.TrimSpace(line))
			}
		}
	}
	return nil
}

func (e evaluator) rules(file string) error {
	rules, err := monitoring.Rules(file)
	if err != nil {
		return err
	}
	for _, rule := range rules {
		if err := e.fire(rule); err != nil {
			return fmt.Errorf("alert %s: %w", rule.Alert, err)
		}
	}
	return nil
}

func (e evaluator) dashboard(file string) error {
	queries, err := monitoring.Queries(file)
	if err != nil {
		return err
	}
	for _, query := range queries {
		found, err := e.evaluate(query.Expr)
		if err != nil {
			return fmt.Errorf("panel %s: %w", query.Panel, err)
		}
		fmt.Println(len(found), query.Panel)
	}
	return nil
}

func run(file string, moments []string) error {
	at := func(number int) time.Time { return time.Unix(0, 0).Add(time.Duration(number+1) * interval) }
	all, err := read(moments, at)
	if err != nil {
		return err
	}
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 1_000_000, Timeout: time.Minute, LookbackDelta: interval, Parser: monitoring.PromQL,
	})
	e := evaluator{engine, all, at(len(moments) - 1)}
	if filepath.Ext(file) == ".json" {
		return e.dashboard(file)
	}
	return e.rules(file)
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: promeval FILE DIR...")
		os.Exit(1)
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n", err)
		os.Exit(1)
	}
}
