// SPDX-License-Identifier: Apache-2.0

// Package monitoring reads rule files and dashboards as Prometheus and Grafana do.
//
// A rule file is read by model/rulefmt, which `promtool check rules` calls. A dashboard is read by the types that Grafana generates
// from its schema, which refuse an unknown field, a missing one and an option that the panel does not have.
package monitoring

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

// PromQL parses expressions.
var PromQL = parser.NewParser(parser.Options{})

// Rules returns the rules of all groups of a file.
func Rules(file string) ([]rulefmt.Rule, error) {
	groups, errs := rulefmt.ParseFile(file, false, model.UTF8Validation, PromQL, slog.Default())
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	var all []rulefmt.Rule
	for _, group := range groups.Groups {
		all = append(all, group.Rules...)
	}
	return all, nil
}

// Query is one query of a panel, with Grafana's variables replaced.
type Query struct {
	Panel string
	Expr  string
}

// parse reads a dashboard. Grafana accepts one without title, uid or schemaVersion, and makes them up.
func parse(file string) (*dashboard.Dashboard, error) {
	plugins.RegisterDefaultPlugins()
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

// Queries returns the queries of a dashboard.
func Queries(file string) ([]Query, error) {
	board, err := parse(file)
	if err != nil {
		return nil, err
	}
	var all []Query
	seen := map[uint32]string{}
	variables := strings.NewReplacer("$__rate_interval", "10m", "$job", ".+")
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
			all = append(all, Query{*panel.Title, variables.Replace(query.Expr)})
		}
	}
	return all, nil
}
