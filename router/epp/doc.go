// Package epp runs the configuration of an endpoint picker: the YAML document EndpointPickerConfig that the Gateway
// API Inference Extension, llm-d and KServe read. Its filters, scorers, pickers, profile handlers, prefix index,
// in-flight counts and saturation detectors follow the rules of two pickers:
//
//	gie    sigs.k8s.io/gateway-api-inference-extension v1.5.0
//	llm-d  github.com/llm-d/llm-d-router at ebab687927f5 (2026-08-21; scores as in v0.10.0)
//
// A caller parses a configuration once, and asks the scheduler for every request:
//
//	config, err := epp.Parse(data, "config.yaml", "")
//	s := epp.NewScheduler(config, epp.Options{Seed: 1})
//	decision, rejection := s.Schedule(&request, endpoints)
//	s.Commit(&request, decision)  // the request goes there
//	s.Ended(request.ID)           // its response has ended
//
// The package does no I/O and has no clock. Recorded decisions of both pickers judge it: lorasim validate
// --epp-cases.
package epp
