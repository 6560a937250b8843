package epp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"lorasim/internal/yamlfile"
)

// Dialect is the picker whose rules a configuration follows.
type Dialect string

// The dialects: Gateway API Inference Extension, and llm-d.
const (
	GIE  Dialect = "gie"
	LLMD Dialect = "llm-d"
)

// versions lists the values of apiVersion that each picker takes. Both take a document without one.
var versions = map[Dialect][]string{
	GIE:  {"inference.networking.x-k8s.io/v1alpha1"},
	LLMD: {"llm-d.ai/v1alpha1", "llm-d.ai/v1", "inference.networking.x-k8s.io/v1alpha1"},
}

// document is the part of an EndpointPickerConfig that both dialects share. A field that is known and has no effect
// here is kept raw.
type document struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Gates      []string        `json:"featureGates"`
	Plugins    []pluginSpec    `json:"plugins"`
	Profiles   []profileSpec   `json:"schedulingProfiles"`
	Saturation *reference      `json:"saturationDetector"`
	Parser     *reference      `json:"parser"`
	Data       *dataLayer      `json:"dataLayer"`
	Flow       *flowControl    `json:"flowControl"`
	Handler    *requestHandler `json:"requestHandler"` // llm-d
}

// pluginSpec is an instance of a plugin.
type pluginSpec struct {
	Name       string          `json:"name"`
	Type       string          `json:"type"`
	Parameters json.RawMessage `json:"parameters"`
}

// profileSpec is a scheduling profile.
type profileSpec struct {
	Name    string `json:"name"`
	Plugins []use  `json:"plugins"`
}

// use is a plugin in a profile. Weight counts for scorers only; nil: 1.
type use struct {
	Ref    string   `json:"pluginRef"`
	Weight *float64 `json:"weight"`
}

// reference names an instance of a plugin.
type reference struct {
	Ref string `json:"pluginRef"`
}

type dataLayer struct {
	Sources []struct {
		reference
		Extractors []reference `json:"extractors"`
	} `json:"sources"`
	Defaults      json.RawMessage `json:"injectDefaults"`
	Discovery     json.RawMessage `json:"discovery"`
	PeerDiscovery json.RawMessage `json:"peerDiscovery"`
	Syncer        json.RawMessage `json:"crossReplicaSyncerPluginRef"`
	SyncInterval  json.RawMessage `json:"crossReplicaSyncInterval"`
}

type flowControl struct {
	MaxBytes     json.RawMessage `json:"maxBytes"`
	MaxRequests  json.RawMessage `json:"maxRequests"`
	TTL          json.RawMessage `json:"defaultRequestTTL"`
	NoEndpoint   json.RawMessage `json:"noEndpointRequestTTL"`
	Band         json.RawMessage `json:"defaultPriorityBand"`
	NegativeBand json.RawMessage `json:"defaultNegativePriorityBand"`
	Bands        json.RawMessage `json:"priorityBands"`
	UsageLimit   string          `json:"usageLimitPolicyPluginRef"`
	Saturation   *reference      `json:"saturationDetector"`
}

type requestHandler struct {
	Parsers []reference `json:"parsers"`
}

// readDocument reads a YAML or JSON document. Unknown fields are errors. It returns the dialect: the given one, or for
// "" the dialect of apiVersion.
func readDocument(data []byte, file string, d Dialect) (*document, Dialect, error) {
	var tree any
	if err := yamlfile.UnmarshalPart(data, file, &tree); err != nil {
		return nil, "", err
	}
	if tree == nil {
		tree = map[string]any{}
	}
	text, err := json.Marshal(tree)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", file, err)
	}
	if _, ok := tree.(map[string]any); !ok {
		return nil, "", fmt.Errorf("%s: is no EndpointPickerConfig: expected a YAML document of keys and values", file)
	}
	doc := &document{}
	if err := decode(text, doc, true); err != nil {
		return nil, "", fmt.Errorf("%s: %w", file, err)
	}
	if d, err = doc.dialect(d); err != nil {
		return nil, "", fmt.Errorf("%s: %w", file, err)
	}
	return doc, d, nil
}

// dialect checks apiVersion and kind.
func (doc *document) dialect(d Dialect) (Dialect, error) {
	switch {
	case d != "":
	case strings.HasPrefix(doc.APIVersion, "llm-d.ai/"):
		d = LLMD
	default:
		d = GIE
	}
	known, ok := versions[d]
	if !ok {
		return "", fmt.Errorf("dialect %q: expected %s or %s", d, GIE, LLMD)
	}
	if doc.APIVersion != "" && !slices.Contains(known, doc.APIVersion) {
		return "", fmt.Errorf("apiVersion %q: %s reads %s", doc.APIVersion, d, strings.Join(known, ", "))
	}
	if doc.Kind != "" && doc.Kind != "EndpointPickerConfig" {
		return "", fmt.Errorf("kind %q: expected EndpointPickerConfig", doc.Kind)
	}
	if d == GIE && doc.Handler != nil {
		return "", fmt.Errorf("unknown field %q (%s has it)", "requestHandler", LLMD)
	}
	return d, nil
}

// decode reads one JSON value; strict: unknown fields are errors.
func decode(text []byte, into any, strict bool) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	if strict {
		dec.DisallowUnknownFields()
	}
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return fmt.Errorf("more than one JSON value")
	}
	return nil
}
