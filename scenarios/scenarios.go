// Package scenarios has the scenario and sweep files of this folder.
package scenarios

import "embed"

// Files are the YAML files, without a folder.
//
//go:embed *.yaml
var Files embed.FS
