package manifest

import "encoding/json"

// jsonField returns a text of a JSON object, by the first name that it has; "" for anything else.
func jsonField(text string, names ...string) string {
	var object map[string]any
	if json.Unmarshal([]byte(text), &object) != nil {
		return ""
	}
	for _, n := range names {
		if s, ok := object[n].(string); ok {
			return s
		}
	}
	return ""
}
