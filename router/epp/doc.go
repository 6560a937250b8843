// Package epp runs the configuration of an endpoint picker: the YAML document EndpointPickerConfig of the Gateway API
// Inference Extension, llm-d and KServe. It implements their filters, scorers, pickers, profile handlers, prefix index,
// in-flight counts and saturation detectors, by the rules of two pickers:
//
//	gie    sigs.k8s.io/gateway-api-inference-extension v1.5.0
//	llm-d  github.com/llm-d/llm-d-router at ebab687927f5 (2026-08-21; scores as in v0.10.0)
//
// A caller parses a configuration once and calls the scheduler for every request:
//
//	config, err := epp.Parse(data, "config.yaml", "")
//	s := epp.NewScheduler(config, epp.Options{Seed: 1})
//	decision, rejection := s.Schedule(&request, endpoints)
//	s.Commit(&request, decision)  // the request goes there
//	s.Ended(request.ID)           // its response has ended
//
// The package does no I/O and has no clock. lorasim profile check epp-cases compares it with recorded decisions of both
// pickers.
package epp
