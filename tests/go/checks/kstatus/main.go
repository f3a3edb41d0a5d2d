// SPDX-License-Identifier: Apache-2.0

// Command kstatus reads an object as JSON from stdin and prints its status by the rules of kstatus, which Flux and Helm 4 use:
// Current, InProgress, Failed, Terminating or Unknown, and why.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func run() error {
	var content map[string]any
	if err := json.NewDecoder(os.Stdin).Decode(&content); err != nil {
		return err
	}
	// As a client of Kubernetes reads numbers.
	object := &unstructured.Unstructured{}
	text, err := json.Marshal(content)
	if err != nil {
		return err
	}
	if err := object.UnmarshalJSON(text); err != nil {
		return err
	}
	result, err := status.Compute(object)
	if err != nil {
		return err
	}
	fmt.Printf("%s %s\n", result.Status, result.Message)
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
