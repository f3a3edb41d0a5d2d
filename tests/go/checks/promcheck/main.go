// SPDX-License-Identifier: Apache-2.0

// Command promcheck reads alert rules and dashboards as Prometheus and Grafana do, and prints the metrics that they name.
//
//	promcheck FILE...
//
// Package monitoring reads a rule file (.yaml) or a dashboard (.json), and the parser of PromQL each of its queries. promtool links a
// client of every cloud for service discovery, Grafana's dashboard-linter links Loki, and both take many times as long to build.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"rdmanet/tests/go/checks/monitoring"
)

// rules returns the expressions of a rule file.
func rules(file string) ([]string, error) {
	all, err := monitoring.Rules(file)
	if err != nil {
		return nil, err
	}
	var exprs []string
	for _, rule := range all {
		exprs = append(exprs, rule.Expr)
	}
	return exprs, nil
}

// queries returns the expressions of a dashboard.
func queries(file string) ([]string, error) {
	all, err := monitoring.Queries(file)
	if err != nil {
		return nil, err
	}
	var exprs []string
	for _, query := range all {
		exprs = append(exprs, query.Expr)
	}
	return exprs, nil
}

// metrics returns the names that an expression selects.
func metrics(expr string) ([]string, error) {
	parsed, err := monitoring.PromQL.ParseExpr(expr)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", expr, err)
	}
	var names []string
	for _, selectors := range parser.ExtractSelectors(parsed) {
		for _, matcher := range selectors {
			if matcher.Name == labels.MetricName {
				names = append(names, matcher.Value)
			}
		}
	}
	return names, nil
}

func check(file string, names map[string]bool) error {
	read := rules
	if filepath.Ext(file) == ".json" {
		read = queries
	}
	exprs, err := read(file)
	if err != nil {
		return err
	}
	if len(exprs) == 0 {
		return errors.New("no expression")
	}
	for _, expr := range exprs {
		found, err := metrics(expr)
		if err != nil {
			return err
		}
		for _, name := range found {
			names[name] = true
		}
	}
	return nil
}

func main() {
	names := map[string]bool{}
	for _, file := range os.Args[1:] {
		if err := check(file, names); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", file, err)
			os.Exit(1)
		}
	}
	sorted := make([]string, 0, len(names))
	for name := range names {
		sorted = append(sorted, name)
	}
	sort.Strings(sorted)
	for _, name := range sorted {
		fmt.Println(name)
	}
}
