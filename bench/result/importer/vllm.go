package importer

import (
	"regexp"
	"strconv"
	"strings"

	"lorasim/bench/result"
)

// vllmClient is the layout of the block of `vllm bench serve` and of its forerunner benchmark_serving.py. The rows
// differ by version and by the percentiles that a user chose, so that it is read only.
const vllmClient result.Layout = "vllm"

const failedRow = "Failed requests:" // since 2025-09

// vllmRows are rows and titles that only vLLM prints.
var vllmRows = []string{failedRow, "Maximum request concurrency:", "Request rate configured (RPS):",
	"Total Token throughput (tok/s):", // until 2025-12
	"Request goodput (req/s):", "Inter-token Latency", "End-to-end Latency", "Mean E2EL (ms):", "Speculative Decoding"}

// vllmLatency matches the rows of latencies, with percentiles of the user's choice.
var vllmLatency = regexp.MustCompile(`^(Mean|Median|Std|P[0-9.]+) (E2EL|E2E Latency|TTFT|TPOT|ITL) \(ms\):$`)

// setVLLM sets the value of a row that only vLLM prints. It returns false for other rows, and for values that are not
// understood. A latency that is not a number is absent.
func (m *Imported) setVLLM(label, value string) bool {
	switch label {
	case failedRow:
		n, err := strconv.ParseInt(value, 10, 64)
		m.failures = max(n, 0)
		return err == nil
	case "Maximum request concurrency:":
		n, err := strconv.Atoi(value)
		m.MaxConcurrency = max(n, 0)
		return err == nil
	case "Request rate configured (RPS):":
		rate, err := result.ParseRate(value)
		m.RequestRate = rate
		return err == nil
	case "Total Token throughput (tok/s):":
		return m.setValue(result.TotalThroughput, value) == nil
	}
	of := vllmLatency.FindStringSubmatch(label)
	if of == nil {
		return false
	}
	family := strings.ToLower(strings.NewReplacer("E2EL", "e2e_latency", "E2E Latency", "e2e_latency").Replace(of[2]))
	key := strings.ToLower(of[1]) + "_" + family + "_ms"
	if k, ok := result.IDOf(key); ok {
		m.setValue(k, value)
	} else if v, err := strconv.ParseFloat(value, 64); err == nil {
		m.SetConfig(key, v)
	}
	return true
}

// keepRow keeps a row without a metric in the configuration, under its label.
func (m *Imported) keepRow(label, value string) {
	name := strings.TrimSuffix(label, ":")
	if v, err := strconv.ParseFloat(value, 64); err == nil {
		m.SetConfig(name, v)
	} else {
		m.SetConfig(name, value)
	}
}
