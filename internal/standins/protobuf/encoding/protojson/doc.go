// Package protojson is empty: go mod tidy looks for it, for the tests of dependencies.
package protojson
