// SPDX-License-Identifier: Apache-2.0

// Command promlint checks the names, types and help texts of served metrics with Prometheus' linter, as "promtool check metrics" does.
//
//	promlint FILE...
//
// Each FILE is a target's response to GET of /metrics, with its headers. A line is printed for each problem: the metric and the text.
//
// The linter reads Prometheus' older text format only. So Prometheus' own parser reads the response, as its Content-Type says, and the
// linter gets the metrics with the names of the samples: in OpenMetrics the counter of the sample a_total is called a.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

	"rdmanet/tests/go/checks/monitoring"
)

// suffixes are the ends of the names of samples, for the types of OpenMetrics that have any. The metric of a histogram is counted once.
var suffixes = map[model.MetricType]struct{ name, sample string }{
	model.MetricTypeCounter:   {"_total", "_total"},
	model.MetricTypeInfo:      {"_info", "_info"},
	model.MetricTypeHistogram: {"", "_count"},
	model.MetricTypeSummary:   {"", "_count"},
}

// types are the types that the linter knows. It takes the metric of an info for a gauge, as the older format does.
var types = map[model.MetricType]dto.MetricType{
	model.MetricTypeCounter:   dto.MetricType_COUNTER,
	model.MetricTypeGauge:     dto.MetricType_GAUGE,
	model.MetricTypeInfo:      dto.MetricType_GAUGE,
	model.MetricTypeHistogram: dto.MetricType_HISTOGRAM,
	model.MetricTypeSummary:   dto.MetricType_SUMMARY,
}

// families are the metrics of a response. `samples` has the family of each sample that stands for one metric.
type families struct {
	all     []*dto.MetricFamily
	named   map[string]*dto.MetricFamily
	samples map[string]*dto.MetricFamily
	endings map[string]bool
}

// family returns the one that the metadata calls `name`.
func (f *families) family(name string) *dto.MetricFamily {
	if found, ok := f.named[name]; ok {
		return found
	}
	made := &dto.MetricFamily{Name: &name, Type: dto.MetricType_UNTYPED.Enum()}
	f.named[name] = made
	f.all = append(f.all, made)
	return made
}

// typed sets the type of a family, and with it the names of its samples.
func (f *families) typed(name string, kind model.MetricType) {
	family, suffix := f.family(name), suffixes[kind]
	if known, ok := types[kind]; ok {
		family.Type = known.Enum()
	}
	full := name + suffix.name
	family.Name = &full
	f.samples[name+suffix.sample] = family
	for _, other := range []string{"_bucket", "_sum", "_created"} {
		f.endings[name+other] = true
	}
}

// sample adds a metric of a family.
func (f *families) sample(of labels.Labels) error {
	name := of.Get(labels.MetricName)
	family, ok := f.samples[name]
	if !ok {
		if f.endings[name] {
			return nil
		}
		return fmt.Errorf("%s has no type", name)
	}
	metric := &dto.Metric{}
	of.Range(func(label labels.Label) {
		if label.Name != labels.MetricName {
			metric.Label = append(metric.Label, &dto.LabelPair{Name: &label.Name, Value: &label.Value})
		}
	})
	family.Metric = append(family.Metric, metric)
	return nil
}

// parse returns the metrics of a response.
func parse(target io.Reader) ([]*dto.MetricFamily, error) {
	reader, err := monitoring.Metrics(target)
	if err != nil {
		return nil, err
	}
	found := families{nil, map[string]*dto.MetricFamily{}, map[string]*dto.MetricFamily{}, map[string]bool{}}
	for {
		entry, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return found.all, nil
		}
		if err != nil {
			return nil, err
		}
		switch entry {
		case textparse.EntryHelp:
			name, help := reader.Help()
			text := string(help)
			found.family(string(name)).Help = &text
		case textparse.EntryType:
			name, kind := reader.Type()
			found.typed(string(name), kind)
		case textparse.EntrySeries:
			var of labels.Labels
			reader.Labels(&of)
			if err := found.sample(of); err != nil {
				return nil, err
			}
		}
	}
}

// lint prints the problems of one response.
func lint(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	all, err := parse(file)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return errors.New("no metrics")
	}
	problems, err := promlint.NewWithMetricFamilies(all).Lint()
	if err != nil {
		return err
	}
	for _, problem := range problems {
		fmt.Println(strings.TrimSpace(problem.Metric + ": " + problem.Text))
	}
	return nil
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "promlint FILE...")
		os.Exit(2)
	}
	for _, name := range os.Args[1:] {
		if err := lint(name); err != nil {
			fmt.Fprintf(os.Stderr, "promlint: %s: %v\n", name, err)
			os.Exit(1)
		}
	}
}
