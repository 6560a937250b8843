package builtin

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"lorasim/internal/testutil"
	"lorasim/router"
)

// TestPoliciesPage: docs/policies.md has a section for each group of policies, whose table lists them.
// With -update it writes the tables.
func TestPoliciesPage(t *testing.T) {
	const file = "../../docs/policies.md"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	tables := map[router.Group]string{}
	for _, d := range router.List() {
		tables[d.Group] += fmt.Sprintf("| `%s` | %s |\n", d.Name, d.Summary)
	}
	page := string(data)
	for group, rows := range tables {
		section := regexp.MustCompile(`(?s)(\n## ` + string(group) +
			`\n.*?\| policy \| chooses \|\n\|---\|---\|\n)(?:\|[^\n]*\n)*`)
		at := section.FindStringSubmatchIndex(page)
		if at == nil || strings.Contains(page[at[2]+1:at[3]], "\n## ") {
			t.Fatalf("%s: no section %q with the head of a table of policies", file, group)
		}
		page = page[:at[3]] + rows + page[at[1]:]
	}
	testutil.Golden(t, file, page)
}
