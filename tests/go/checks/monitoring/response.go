// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"bufio"
	"errors"
	"io"
	"net/http"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

// Metrics reads a target's response to GET of /metrics, with its headers, as Prometheus does: its status must be 200, and its
// Content-Type decides about the format.
func Metrics(target io.Reader) (textparse.Parser, error) {
	response, err := http.ReadResponse(bufio.NewReader(target), nil)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, errors.New(response.Status)
	}
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	return textparse.New(text, response.Header.Get("Content-Type"), labels.NewSymbolTable(), textparse.ParserOptions{})
}
