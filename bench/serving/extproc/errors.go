package extproc

import (
	"encoding/json"
	"net/http"
)

// errorBody is an error in the form of the OpenAI interfaces.
func errorBody(no *Refusal) string {
	type problem struct {
		Message string `json:"message"`
		Type    string `json:"type"`
		Code    int    `json:"code"`
	}
	b, err := json.Marshal(map[string]problem{"error": {no.Text, http.StatusText(no.Status), no.Status}})
	if err != nil {
		return no.Text
	}
	return string(b)
}
