// SPDX-License-Identifier: Apache-2.0

// Command bomcheck reads a CycloneDX bill of materials and validates it against the JSON schema of its version.
//
//	bomcheck SCHEMAS BOM
//
// SCHEMAS is the directory `schema` of the module github.com/CycloneDX/cyclonedx-go, which has the schemas of the
// specification. Each name in a license expression must be one that the SPDX list of that directory has. Nothing is read from the
// network.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	"github.com/xeipuuv/gojsonschema"
)

// The names by which the schemas refer to each other, and their files.
var shared = map[string]string{
	"http://cyclonedx.org/schema/spdx.schema.json":     "spdx.schema.json",
	"http://cyclonedx.org/schema/jsf-0.82.schema.json": "jsf-0.82.schemax.json",
}

func main() {
	if len(os.Args) != 3 {
		fail(fmt.Errorf("usage: bomcheck SCHEMAS BOM"))
	}
	text, err := os.ReadFile(os.Args[2])
	if err != nil {
		fail(err)
	}
	var bom cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(bytes.NewReader(text), cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
		fail(fmt.Errorf("decode: %w", err))
	}
	if err := validate(os.Args[1], text, bom.SpecVersion); err != nil {
		fail(err)
	}
	count, err := licenses(os.Args[1], &bom)
	if err != nil {
		fail(err)
	}
	fmt.Printf("CycloneDX %s: %d components with a license\n", bom.SpecVersion, count)
}

func validate(directory string, text []byte, version cyclonedx.SpecVersion) error {
	loader := gojsonschema.NewSchemaLoader()
	for name, file := range shared {
		content, err := os.ReadFile(filepath.Join(directory, file))
		if err != nil {
			return err
		}
		if err := loader.AddSchema(name, gojsonschema.NewBytesLoader(content)); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	content, err := os.ReadFile(filepath.Join(directory, fmt.Sprintf("bom-%s.schema.json", version)))
	if err != nil {
		return err
	}
	schema, err := loader.Compile(gojsonschema.NewBytesLoader(content))
	if err != nil {
		return fmt.Errorf("schema of %s: %w", version, err)
	}
	result, err := schema.Validate(gojsonschema.NewBytesLoader(text))
	if err != nil {
		return err
	}
	var all []error
	for _, wrong := range result.Errors() {
		all = append(all, fmt.Errorf("%s: %s", wrong.Field(), wrong.Description()))
	}
	return errors.Join(all...)
}

// licenses returns the number of components, each of which has a license expression of names that SPDX knows.
func licenses(directory string, bom *cyclonedx.BOM) (int, error) {
	var spdx struct{ Enum []string }
	content, err := os.ReadFile(filepath.Join(directory, "spdx.schema.json"))
	if err != nil {
		return 0, err
	}
	if err := json.Unmarshal(content, &spdx); err != nil {
		return 0, err
	}
	// The list of the directory is older than Unicode-3.0 (SPDX License List 3.24).
	known := map[string]bool{"AND": true, "OR": true, "WITH": true, "Unicode-3.0": true}
	for _, name := range spdx.Enum {
		known[name] = true
	}
	if bom.Components == nil {
		return 0, fmt.Errorf("no components")
	}
	for _, component := range *bom.Components {
		if component.Licenses == nil || len(*component.Licenses) == 0 {
			return 0, fmt.Errorf("%s has no license", component.Name)
		}
		for _, license := range *component.Licenses {
			names := strings.Fields(strings.NewReplacer("(", " ", ")", " ").Replace(license.Expression))
			if len(names) == 0 {
				return 0, fmt.Errorf("%s has an empty license expression", component.Name)
			}
			for _, name := range names {
				if !known[name] {
					return 0, fmt.Errorf("%s: %q in %q is not in the SPDX list", component.Name, name, license.Expression)
				}
			}
		}
	}
	return len(*bom.Components), nil
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "bomcheck:", err)
	os.Exit(1)
}
