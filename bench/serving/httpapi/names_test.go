package httpapi

import "testing"

// The name of the model stands in the reply, or in the object that an event carries. What is deeper is no name.
func TestContradicted(t *testing.T) {
	n := ModelNames{Sent: "base:a", Asked: "a", Adapter: `b"c`, Base: "root"}
	for reply, want := range map[string]string{
		`{"id":"x","model":"base:a","choices":[]}`: "",
		`{"model" : "a"}`:                          "",
		`{"model":"b\"c"}`:                         "",
		`{"model":"root:b\"c"}`:                    "",
		`{"model":"root"}`:                         "root",
		`{"model":"base"}`:                         "base",
		`{"model":"base:ab"}`:                      "base:ab",
		`{"model": null}`:                          "",
		`{"model": {"model": "x"}}`:                "",
		`{"message":"model","model":"x"}`:          "x",
		`{"type":"message_start","message":{"id":"1","model":"base"}}`: "base",
		`{"type":"response.created","response":{"model":"base"}}`:      "base",
		`{"choices":[{"message":{"model":"x"}}],"model":"a"}`:          "",
		`{"text":"\"model\":\"x\""}`:                                   "",
		`{"object":"list","model":"base","data":[1,2`:                  "base",
		`{"data":[{"model":"x"},`:                                      "",
		`[{"model":"x"}]`:                                              "",
		`"model"`:                                                      "",
		"":                                                             "",
	} {
		if got := n.Contradicted([]byte(reply)); got != want {
			t.Errorf("%s: %q, expected %q", reply, got, want)
		}
		if got := (&ModelNames{}).Contradicted([]byte(reply)); got != "" {
			t.Errorf("%s: %q without an expectation", reply, got)
		}
	}
}
