// SPDX-License-Identifier: Apache-2.0

// Command promcheck reads alert rules and dashboards as Prometheus and Grafana do, and prints the metrics that they name.
//
//	promcheck FILE...
//
// A rule file (.yaml) is read by model/rulefmt, which `promtool check rules` calls. promtool itself links a client of every cloud
// for service discovery, and takes many times as long to build.
//
// A dashboard (.json) is read by the types that Grafana generates from its schema, which refuse an unknown field, a missing one and
// an option that the panel does not have. Each query is then read by the parser of PromQL, with Grafana's variables replaced.
// Grafana's dashboard-linter links Loki, and takes many times as long to build.
package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

var pql = parser.NewParser(parser.Options{})

// rules returns the expressions of a rule file.
func rules(file string) ([]string, error) {
	groups, errs := rulefmt.ParseFile(file, false, model.UTF8Validation, pql, slog.Default())
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	var all []string
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			all = append(all, rule.Expr)
		}
	}
	return all, nil
}

// parse reads a dashboard. Grafana accepts one without title, uid or schemaVersion, and makes them up.
func parse(file string) (*dashboard.Dashboard, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var board dashboard.Dashboard
	if err := board.UnmarshalJSONStrict(text); err != nil {
		return nil, err
	}
	if err := board.Validate(); err != nil {
		return nil, err
	}
	if board.Title == nil || board.Uid == nil || board.SchemaVersion == 0 {
		return nil, errors.New("a dashboard has title, uid and schemaVersion")
	}
	return &board, nil
}

// queries returns the expressions of a dashboard.
func queries(file string) ([]string, error) {
	board, err := parse(file)
	if err != nil {
		return nil, err
	}
	var all []string
	seen := map[uint32]string{}
	variables := strings.NewReplacer("$__rate_interval", "5m", "$job", ".+")
	for number, one := range board.Panels {
		panel := one.Panel
		if panel == nil || panel.Id == nil || panel.Title == nil || len(panel.Targets) == 0 {
			return nil, fmt.Errorf("panel %d of the file has no id, title or query", number)
		}
		if other, taken := seen[*panel.Id]; taken {
			return nil, fmt.Errorf("panels %q and %q have one id", other, *panel.Title)
		}
		seen[*panel.Id] = *panel.Title
		for _, target := range panel.Targets {
			query, ok := target.(*prometheus.Dataquery)
			if !ok {
				return nil, fmt.Errorf("panel %q has a query that is not for Prometheus: %T", *panel.Title, target)
			}
			all = append(all, variables.Replace(query.Expr))
		}
	}
	return all, nil
}

// metrics returns the names that an expression selects.
func metrics(expr string) ([]string, error) {
	parsed, err := pql.ParseExpr(expr)
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
	plugins.RegisterDefaultPlugins()
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
