package metrics

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"strconv"
	"strings"
	"time"

	"lorasim/router/promtext"
)

// collectGo adds the metrics of the Go runtime, under the names of Prometheus' Go client.
func collectGo(p *promtext.Page) {
	gauge := func(name, help string, v float64, labels ...promtext.Label) {
		p.Add(promtext.Gauge, "go_"+name, help, v, labels...)
	}
	gauge("goroutines", "Number of goroutines that currently exist.", float64(runtime.NumGoroutine()))
	threads, _ := runtime.ThreadCreateProfile(nil)
	gauge("threads", "Number of OS threads created.", float64(threads))
	gauge("info", "Information about the Go environment.", 1,
		promtext.Label{Name: "version", Value: runtime.Version()})

	pauses := debug.GCStats{PauseQuantiles: make([]time.Duration, 5)}
	debug.ReadGCStats(&pauses)
	var quantiles []promtext.Bucket
	for i, q := range pauses.PauseQuantiles {
		quantiles = append(quantiles, promtext.Bucket{Bound: float64(i) / 4, Count: q.Seconds()})
	}
	p.AddSummary("go_gc_duration_seconds",
		"A summary of the wall-time pause (stop-the-world) duration in garbage collection cycles.", quantiles,
		float64(pauses.NumGC), pauses.PauseTotal.Seconds())
	gauge("memstats_last_gc_time_seconds", "Number of seconds since 1970 of last garbage collection.",
		float64(pauses.LastGC.UnixNano())/1e9)

	for _, m := range []struct{ of, name, help string }{
		{"/gc/gogc:percent", "gc_gogc_percent", "Heap size target percentage configured by the user, otherwise 100."},
		{"/gc/gomemlimit:bytes", "gc_gomemlimit_bytes", "Go runtime memory limit configured by the user."},
		{"/sched/gomaxprocs:threads", "sched_gomaxprocs_threads",
			"Number of operating system threads that can execute user-level Go code simultaneously."},
	} {
		sample := []runtimemetrics.Sample{{Name: m.of}}
		runtimemetrics.Read(sample)
		if sample[0].Value.Kind() == runtimemetrics.KindUint64 {
			gauge(m.name, m.help, float64(sample[0].Value.Uint64()))
		}
	}
	collectMemory(p)
}

// collectMemory adds the memory statistics of the Go runtime.
func collectMemory(p *promtext.Page) {
	var ms runtime.MemStats
	runtime.ReadMemStats(&ms)
	for _, m := range []struct {
		name, help string
		v          uint64
	}{
		{"alloc_bytes", "Number of bytes allocated in heap and currently in use.", ms.Alloc},
		{"alloc_bytes_total", "Total number of bytes allocated in heap until now, even if released already.",
			ms.TotalAlloc},
		{"sys_bytes", "Number of bytes obtained from system.", ms.Sys},
		{"mallocs_total", "Total number of heap objects allocated, both live and gc-ed.", ms.Mallocs},
		{"frees_total", "Total number of heap objects frees.", ms.Frees},
		{"heap_alloc_bytes", "Number of heap bytes allocated and currently in use.", ms.HeapAlloc},
		{"heap_sys_bytes", "Number of heap bytes obtained from system.", ms.HeapSys},
		{"heap_idle_bytes", "Number of heap bytes waiting to be used.", ms.HeapIdle},
		{"heap_inuse_bytes", "Number of heap bytes that are in use.", ms.HeapInuse},
		{"heap_released_bytes", "Number of heap bytes released to OS.", ms.HeapReleased},
		{"heap_objects", "Number of currently allocated objects.", ms.HeapObjects},
		{"stack_inuse_bytes", "Number of bytes obtained from system for stack allocator.", ms.StackInuse},
		{"stack_sys_bytes", "Number of bytes obtained from system for stack allocator, with stacks of the OS.",
			ms.StackSys},
		{"mspan_inuse_bytes", "Number of bytes in use by mspan structures.", ms.MSpanInuse},
		{"mspan_sys_bytes", "Number of bytes used for mspan structures obtained from system.", ms.MSpanSys},
		{"mcache_inuse_bytes", "Number of bytes in use by mcache structures.", ms.MCacheInuse},
		{"mcache_sys_bytes", "Number of bytes used for mcache structures obtained from system.", ms.MCacheSys},
		{"buck_hash_sys_bytes", "Number of bytes used by the profiling bucket hash table.", ms.BuckHashSys},
		{"gc_sys_bytes", "Number of bytes used for garbage collection system metadata.", ms.GCSys},
		{"other_sys_bytes", "Number of bytes used for other system allocations.", ms.OtherSys},
		{"next_gc_bytes", "Number of heap bytes when next garbage collection will take place.", ms.NextGC},
	} {
		kind := promtext.Gauge
		if strings.HasSuffix(m.name, "_total") {
			kind = promtext.Counter
		}
		p.Add(kind, "go_memstats_"+m.name, m.help, float64(m.v))
	}
}

// collectProcess adds the metrics of the process, under the names of Prometheus' Go client. They come from /proc:
// other systems than Linux have none.
func collectProcess(p *promtext.Page) {
	add := func(kind promtext.Type, name, help string, v float64) { p.Add(kind, "process_"+name, help, v) }
	const ticks = 100 // of the kernel's clock in a second
	stat, _ := os.ReadFile("/proc/self/stat")
	_, after, _ := strings.Cut(string(stat), ") ") // the name of the program may have blanks
	if f := strings.Fields(after); len(f) > 21 {
		at := func(i int) float64 { return parse(f[i]) }
		add(promtext.Counter, "cpu_seconds_total", "Total user and system CPU time spent in seconds.",
			(at(11)+at(12))/ticks)
		add(promtext.Gauge, "virtual_memory_bytes", "Virtual memory size in bytes.", at(20))
		add(promtext.Gauge, "resident_memory_bytes", "Resident memory size in bytes.",
			at(21)*float64(os.Getpagesize()))
		if boot, ok := firstAfter("/proc/stat", "btime "); ok {
			add(promtext.Gauge, "start_time_seconds", "Start time of the process since unix epoch in seconds.",
				boot+at(19)/ticks)
		}
	}
	if files, err := os.ReadDir("/proc/self/fd"); err == nil {
		add(promtext.Gauge, "open_fds", "Number of open file descriptors.", float64(len(files)-1)) // less the folder's
	}
	if limit, ok := firstAfter("/proc/self/limits", "Max open files "); ok {
		add(promtext.Gauge, "max_fds", "Maximum number of open file descriptors.", limit)
	}
	if limit, ok := firstAfter("/proc/self/limits", "Max address space "); ok {
		add(promtext.Gauge, "virtual_memory_max_bytes", "Maximum amount of virtual memory available in bytes.", limit)
	}
	if lines := linesAfter("/proc/self/net/netstat", "IpExt: "); len(lines) == 2 { // names, and their values
		values := strings.Fields(lines[1])
		for i, name := range strings.Fields(lines[0]) {
			switch {
			case i >= len(values):
			case name == "InOctets":
				add(promtext.Counter, "network_receive_bytes_total",
					"Number of bytes received by the process over the network.", parse(values[i]))
			case name == "OutOctets":
				add(promtext.Counter, "network_transmit_bytes_total",
					"Number of bytes sent by the process over the network.", parse(values[i]))
			}
		}
	}
}

// linesAfter returns the lines of a file that begin with a prefix, without the prefix.
func linesAfter(file, prefix string) (lines []string) {
	text, _ := os.ReadFile(file) // without the file there are none
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			lines = append(lines, rest)
		}
	}
	return lines
}

// firstAfter returns the first number of the first line with a prefix.
func firstAfter(file, prefix string) (v float64, ok bool) {
	for _, line := range linesAfter(file, prefix) {
		if fields := strings.Fields(line); len(fields) > 0 {
			return parse(fields[0]), true
		}
	}
	return 0, false
}

// parse reads a number of /proc. As in Prometheus' client, no limit is the largest number.
func parse(text string) float64 {
	if text == "unlimited" {
		return math.MaxUint64
	}
	v, _ := strconv.ParseFloat(text, 64) // the kernel's
	return v
}
