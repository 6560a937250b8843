// Package manifest reads how operators describe fleets with LoRA adapters: KServe's LLMInferenceService, AIBrix's
// ModelAdapter, Helm values of vLLM's production-stack and of llm-d, RayService, and plain Kubernetes workloads that
// run vllm serve or sglang.launch_server. It finds faults in them, and gives the settings of a scenario.
//
//	fleet, err := manifest.Read(manifest.File{Name: "fleet.yaml", Data: data})
//	for _, f := range fleet.Check() { fmt.Println(f) }
//	settings, err := fleet.Settings("")
package manifest

import (
	"fmt"
	"slices"
	"strings"
)

// The engines.
const (
	vllm   = "vllm"
	sglang = "sglang"
)

// modelAdapter is AIBrix's kind of adapters.
const modelAdapter = "ModelAdapter"

// A File is a manifest, with one or several documents.
type File struct {
	Name string
	Data []byte
}

// A Fleet is what manifests describe.
type Fleet struct {
	Servers  []*Server
	Adapters []*Adapter
	Ignored  []string // documents that say nothing about workers and adapters, with their places

	unresolved []*Adapter // without a server yet
}

// A Server is a group of equal workers.
type Server struct {
	Place    Place    `json:"place"`
	Kind     string   `json:"kind"` // "Deployment", "LLMInferenceService", ...
	Name     string   `json:"name"`
	Engine   string   `json:"engine"`            // vllm or sglang
	Version  string   `json:"version,omitempty"` // "": unknown
	Model    string   `json:"model,omitempty"`   // as the engine gets it; "": unknown
	Served   []string `json:"served_model_names,omitempty"`
	Replicas int      `json:"replicas"`
	GPUs     int      `json:"gpus,omitempty"` // of a replica; 0: not stated
	GPU      string   `json:"gpu,omitempty"`  // product, as a node's label states it; "": not stated
	LoRA     bool     `json:"lora"`
	RunTime  bool     `json:"run_time_loading"` // adapters can be loaded at run time
	Slots    int      `json:"slots,omitempty"`  // GPU adapter slots
	MaxRank  int      `json:"max_lora_rank,omitempty"`
	Host     int      `json:"host_places,omitempty"` // adapters in host memory; 0: no limit

	args     map[string]flag
	labels   map[string]string
	replicas *node // where the number of replicas is written; nil: it is the default
	slots    *node // the same for the number of slots
	host     *node // the same for the number of adapters in host memory
	routed   bool  // KServe makes a route with one rule for each adapter
	volumes  []string
}

// An Adapter is a LoRA adapter of a fleet.
type Adapter struct {
	Place    Place  `json:"place"`
	Kind     string `json:"kind"`
	Name     string `json:"name"`
	Base     string `json:"base,omitempty"` // base model, as the manifest names it
	Source   string `json:"source,omitempty"`
	Rank     int    `json:"rank,omitempty"`   // 0: not stated
	Copies   int    `json:"copies,omitempty"` // workers that hold it; 0: all
	atRun    bool   // loaded at run time, by a controller
	spec     *node  // where the number of workers that hold it is or may be written; nil: nowhere
	replicas *node  // that number; nil: it is the default
	selector map[string]string
	server   *Server
}

// Read reads manifests. It is an error if they describe no worker.
func Read(files ...File) (*Fleet, error) {
	f := &Fleet{}
	for _, file := range files {
		docs, err := documents(file.Data, file.Name)
		if err != nil {
			return nil, err
		}
		for _, d := range docs {
			for _, one := range items(d) {
				f.document(one)
			}
		}
	}
	if len(f.Servers)+len(f.Adapters) == 0 {
		names := make([]string, len(files))
		for i := range files {
			names[i] = files[i].Name
		}
		return nil, fmt.Errorf("%s: no worker and no adapter found: expected KServe's LLMInferenceService, AIBrix's "+
			"ModelAdapter, values of production-stack or llm-d, RayService, or a Deployment that runs vllm serve or "+
			"sglang.launch_server", strings.Join(names, ", "))
	}
	f.resolve()
	return f, nil
}

// items are the documents of a List, or the document itself.
func items(d *node) []*node {
	if d.str("kind") == "List" {
		return d.list("items")
	}
	return []*node{d}
}

func (f *Fleet) document(d *node) {
	kind, before := d.str("kind"), len(f.Servers)+len(f.Adapters)
	switch kind {
	case "LLMInferenceService":
		f.kserve(d)
	case modelAdapter:
		f.modelAdapter(d)
	case "Deployment", "StatefulSet", "ReplicaSet", "DaemonSet":
		f.workload(d, d.get("spec", "template"), d.get("spec", "replicas"))
	case "LeaderWorkerSet":
		f.workload(d, d.get("spec", "leaderWorkerTemplate", "leaderTemplate"), d.get("spec", "replicas"))
	case "Pod":
		f.workload(d, d, nil)
	case "ConfigMap":
		f.syncer(d)
	case "RayService":
		f.ray(d)
	case "":
		f.values(d)
	}
	if len(f.Servers)+len(f.Adapters) == before {
		name := d.str("metadata", "name")
		if kind == "" {
			kind = "a document without workers"
		}
		f.Ignored = append(f.Ignored, strings.TrimSpace(fmt.Sprintf("%s: %s %s", d.place, kind, name)))
	}
}

// workload reads a plain Kubernetes workload. One without an engine is ignored.
func (f *Fleet) workload(d, template, replicas *node) {
	for _, c := range template.list("spec", "containers") {
		line := words(c)
		engine := engineOf(c.str("image"), line)
		if engine == "" {
			continue
		}
		s := newServer(d, engine, replicas)
		s.labels = template.texts("metadata", "labels")
		for _, v := range template.list("spec", "volumes") {
			if name := v.str("configMap", "name"); name != "" {
				s.volumes = append(s.volumes, name)
			}
		}
		s.container(c, line)
		s.node(template.get("spec"))
		s.limits()
		f.add(s)
	}
}

func newServer(d *node, engine string, replicas *node) *Server {
	s := &Server{Place: d.place, Kind: d.str("kind"), Name: d.str("metadata", "name"), Engine: engine, Replicas: 1,
		args: map[string]flag{}}
	s.count(replicas)
	return s
}

func (s *Server) count(replicas *node) {
	if n, ok := replicas.count(); ok {
		s.Replicas, s.replicas = n, replicas
	}
}

// container reads what a container states of its engine.
func (s *Server) container(c *node, line []arg) {
	s.args = flags(s.Engine, line)
	s.Version = versionOf(c.str("image"))
	if m := positional(line); m != nil {
		s.Model = m.text
	}
	for _, resources := range []string{"limits", "requests"} {
		r := c.get("resources", resources)
		if r == nil {
			continue
		}
		for _, k := range r.keys {
			if n, ok := r.count(k); ok && strings.HasSuffix(k, "/gpu") {
				s.GPUs = max(s.GPUs, n)
			}
		}
	}
	for _, e := range c.list("env") {
		if e.str("name") == "VLLM_ALLOW_RUNTIME_LORA_UPDATING" && e.is("value") {
			s.RunTime = true
		}
	}
}

// node finds the GPU in a pod's node selector and affinity.
func (s *Server) node(spec *node) {
	product := func(key, value string) {
		if s.GPU == "" && (strings.Contains(key, "gpu") || strings.Contains(key, "accelerator")) &&
			gpuName(value) != "" {
			s.GPU = value
		}
	}
	if sel := spec.get("nodeSelector"); sel != nil {
		for _, k := range sel.keys {
			product(k, sel.str(k))
		}
	}
	required := spec.get("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
	for _, term := range required.list("nodeSelectorTerms") {
		for _, e := range term.list("matchExpressions") {
			for _, v := range e.list("values") {
				product(e.str("key"), v.text)
			}
		}
	}
}

// limits derives what the flags say, with the engines' defaults.
func (s *Server) limits() {
	if v := s.value("model", "model-path"); v != "" {
		s.Model = v
	}
	if f, ok := s.flag("served-model-name"); ok {
		for _, v := range f.values {
			s.Served = append(s.Served, v.text)
		}
	}
	if s.Engine == sglang {
		f, paths := s.flag("lora-paths")
		_, on := s.flag("enable-lora")
		s.LoRA = on || paths && len(f.values) > 0
		s.RunTime = s.LoRA
		s.Slots, s.MaxRank, s.Host = s.number(8, "max-loras-per-batch"), s.number(0, "max-lora-rank"),
			s.number(0, "max-loaded-loras")
		s.slots, s.host = s.at("max-loras-per-batch"), s.at(hostFlags...)
		return
	}
	if f, on := s.flag("enable-lora"); on {
		s.LoRA = len(f.values) == 0 || !strings.EqualFold(f.values[0].text, "false")
	}
	s.Slots, s.MaxRank = s.number(1, "max-loras"), s.number(16, "max-lora-rank")
	s.Host = s.number(s.Slots, "max-cpu-loras")
	s.slots, s.host = s.at("max-loras"), s.at(hostFlags...)
}

// at returns the value of a manifest with a flag's value.
func (s *Server) at(names ...string) *node {
	if f, _ := s.flag(names...); len(f.values) > 0 {
		return f.values[0].from
	}
	return nil
}

// add adds a server and the adapters that its command line names.
func (f *Fleet) add(s *Server) {
	f.Servers = append(f.Servers, s)
	for _, name := range []string{"lora-modules", "lora-paths"} {
		list, _ := s.flag(name)
		for _, v := range list.values {
			adapter, source, ok := strings.Cut(v.text, "=")
			if !ok {
				source = adapter
			}
			if strings.HasPrefix(v.text, "{") {
				adapter, source = jsonField(v.text, "name", "lora_name"), jsonField(v.text, "path", "lora_path")
			}
			f.Adapters = append(f.Adapters, &Adapter{Place: v.from.place, Kind: "--" + name, Name: adapter,
				Source: source,
				server: s})
		}
	}
}

// kserve reads an LLMInferenceService. Its controller starts vLLM with the adapters of spec.model.lora.
func (f *Fleet) kserve(d *node) {
	spec, lora := d.get("spec"), d.get("spec", "model", "lora")
	s := newServer(d, vllm, spec.get("replicas"))
	s.labels = d.texts("metadata", "labels")
	containers := spec.list("template", "containers")
	for _, c := range containers {
		if len(containers) == 1 || c.str("name") == "main" {
			line := words(c)
			if e := engineOf(c.str("image"), line); e != "" {
				s.Engine = e
			}
			s.container(c, line)
		}
	}
	s.node(spec.get("template"))
	s.limits()
	s.Model = strings.TrimPrefix(spec.str("model", "uri"), "hf://")
	if name := spec.str("model", "name"); name != "" {
		s.Served = []string{name}
	}
	if tp := spec.get("parallelism", "tensor"); tp != nil {
		s.args["tensor-parallel-size"] = flag{values: []arg{{tp.text, tp}}}
	}
	_, s.routed = spec.fieldOK("router", "route")
	f.Servers = append(f.Servers, s)
	adapters := lora.list("adapters")
	for _, a := range adapters {
		rank, _ := a.count("rank")
		f.Adapters = append(f.Adapters, &Adapter{Place: a.place, Kind: "adapter", Name: a.str("name"),
			Source: a.str("uri"), Rank: rank, server: s})
	}
	if lora == nil {
		return
	}
	s.LoRA = true
	s.Slots, s.MaxRank, s.Host = len(adapters), 64, len(adapters)
	for _, v := range []struct {
		key string
		to  *int
	}{{"maxAdapters", &s.Slots}, {"maxRank", &s.MaxRank}, {"maxCpuAdapters", &s.Host}} {
		if n, ok := lora.count(v.key); ok {
			*v.to = n
		}
	}
	s.slots, s.host = lora.get("maxAdapters"), lora.get("maxCpuAdapters")
	if s.host == nil {
		s.Host = max(s.Host, s.Slots)
	}
}

// fieldOK is get that tells an empty value from an absent one.
func (n *node) fieldOK(path ...string) (*node, bool) {
	parent := n.get(path[:len(path)-1]...)
	if parent == nil {
		return nil, false
	}
	v, ok := parent.fields[path[len(path)-1]]
	return v, ok
}

// modelAdapter reads AIBrix's ModelAdapter. Without replicas, all pods load the adapter.
func (f *Fleet) modelAdapter(d *node) {
	spec := d.get("spec")
	a := &Adapter{Place: d.place, Kind: modelAdapter, Name: d.str("metadata", "name"), Base: spec.str("baseModel"),
		Source: spec.str("artifactURL"), atRun: true, selector: spec.texts("podSelector", "matchLabels"), spec: spec,
		replicas: spec.get("replicas")}
	a.Copies, _ = spec.count("replicas")
	a.Rank, _ = spec.count("additionalConfig", "rank")
	if n, stated := spec.fieldOK("replicas"); stated && n.str() == "0" {
		a.Copies = -1
	}
	f.Adapters = append(f.Adapters, a)
	f.unresolved = append(f.unresolved, a)
}

// syncer reads the adapters of the gateway API's lora-syncer.
func (f *Fleet) syncer(d *node) {
	data := d.get("data")
	if data == nil {
		return
	}
	for _, k := range data.keys {
		text := data.fields[k]
		if text == nil || !strings.Contains(text.text, "vLLMLoRAConfig") {
			continue
		}
		docs, err := documents([]byte(text.text), text.place.File)
		if err != nil {
			continue
		}
		for _, doc := range docs {
			config := doc.get("vLLMLoRAConfig")
			for _, m := range config.list("ensureExist", "models") {
				base := m.str("base-model")
				if base == "" {
					base = config.str("defaultBaseModel")
				}
				place := text.place
				place.Line += m.place.Line
				a := &Adapter{Place: place, Kind: "ConfigMap", Name: m.str("id"), Base: base, Source: m.str("source"),
					atRun: true, selector: map[string]string{"configMap": d.str("metadata", "name")}}
				f.Adapters = append(f.Adapters, a)
				f.unresolved = append(f.unresolved, a)
			}
		}
	}
}

// values reads Helm values of vLLM's production-stack and of llm-d's modelservice.
func (f *Fleet) values(d *node) {
	for _, m := range d.list("servingEngineSpec", "modelSpec") {
		image := m.str("repository") + ":" + m.str("tag")
		engine := engineOf(image, nil)
		if engine == "" {
			engine = vllm
		}
		s := newServer(d, engine, m.get("replicaCount"))
		s.Place, s.Kind, s.Name, s.Version, s.Model = m.place, "modelSpec", m.str("name"), versionOf(image),
			m.str("modelURL")
		var line []arg
		config := m.get("vllmConfig")
		for _, a := range config.list("extraArgs") {
			line = append(line, arg{a.text, a})
		}
		s.args = flags(engine, line)
		for key, name := range map[string]string{"maxModelLen": "max-model-len",
			"tensorParallelSize":   "tensor-parallel-size",
			"maxNumSeqs":           "max-num-seqs",
			"gpuMemoryUtilization": "gpu-memory-utilization", "maxLoras": "max-loras",
			"maxLoraRank": "max-lora-rank", "maxCpuLoras": "max-cpu-loras"} {
			for _, at := range []*node{config, m} {
				if v := at.get(key); v != nil {
					s.args[name] = flag{values: []arg{{v.text, v}}, at: v}
				}
			}
		}
		for _, at := range []*node{config, m} {
			if at.is("enableLoRA") || at.is("enableLora") {
				s.args["enable-lora"] = flag{at: at}
			}
			if v, ok := at.fieldOK("enablePrefixCaching"); ok && !v.is() {
				s.args["no-enable-prefix-caching"] = flag{at: at}
			}
		}
		s.GPUs, _ = m.count("requestGPU")
		s.node(m)
		if t := m.str("requestGPUType"); s.GPU == "" && gpuName(t) != "" {
			s.GPU = t
		}
		for _, e := range m.list("env") {
			s.RunTime = s.RunTime || e.str("name") == "VLLM_ALLOW_RUNTIME_LORA_UPDATING" && e.is("value")
		}
		s.limits()
		f.Servers = append(f.Servers, s)
	}
	f.helmAdapters(d)
	if decode := d.get("decode"); decode != nil && d.get("modelArtifacts") != nil {
		f.llmd(d, decode)
	}
}

func (f *Fleet) helmAdapters(d *node) {
	for _, m := range d.list("loraAdapters") {
		a := &Adapter{Place: m.place, Kind: "loraAdapters", Name: m.str("adapterSource", "adapterName"),
			Base: m.str("baseModel"), Source: m.str("adapterSource", "repository"), atRun: true}
		if a.Name == "" {
			a.Name = m.str("name")
		}
		a.Copies, _ = m.count("loraAdapterDeploymentConfig", "replicas")
		a.spec, a.replicas = m, m.get("loraAdapterDeploymentConfig", "replicas")
		f.Adapters = append(f.Adapters, a)
		f.unresolved = append(f.unresolved, a)
	}
}

func (f *Fleet) llmd(d, decode *node) {
	for _, c := range decode.list("containers") {
		line := words(c)
		engine := engineOf(c.str("image"), line)
		if engine == "" && strings.HasPrefix(c.str("modelCommand"), "vllm") {
			engine = vllm
		}
		if engine == "" {
			continue
		}
		s := newServer(d, engine, decode.get("replicas"))
		s.Place, s.Kind, s.Name = decode.place, "decode", d.str("modelArtifacts", "name")
		s.container(c, line)
		if tp := decode.get("parallelism", "tensor"); tp != nil {
			s.args["tensor-parallel-size"] = flag{values: []arg{{tp.text, tp}}}
		}
		s.node(decode)
		s.limits()
		if s.Model == "" {
			s.Model = strings.TrimPrefix(d.str("modelArtifacts", "uri"), "hf://")
		}
		f.add(s)
	}
}

// ray reads the LLM applications of a RayService.
func (f *Fleet) ray(d *node) {
	text := d.get("spec", "serveConfigV2")
	if text == nil {
		return
	}
	docs, err := documents([]byte(text.text), text.place.File)
	if err != nil {
		return
	}
	for _, doc := range docs {
		for _, app := range doc.list("applications") {
			for _, c := range app.list("args", "llm_configs") {
				f.rayModel(d, text, c)
			}
		}
	}
}

func (f *Fleet) rayModel(d, text, c *node) {
	replicas := c.get("deployment_config", "num_replicas")
	if auto := c.get("deployment_config", "autoscaling_config", "max_replicas"); replicas == nil {
		replicas = auto
	}
	s := newServer(d, vllm, replicas)
	s.replicas = nil // its bytes are within a text
	s.Place.Line = text.place.Line + c.place.Line
	s.Served = []string{c.str("model_loading_config", "model_id")}
	s.GPU = c.str("accelerator_type")
	if kw := c.get("engine_kwargs"); kw != nil {
		for _, k := range kw.keys {
			v := kw.fields[k]
			switch {
			case v == nil || !v.scalar:
			case v.is() && v.text != "1":
				s.args[strings.ReplaceAll(k, "_", "-")] = flag{at: v}
			case !strings.EqualFold(v.text, "false"):
				s.args[strings.ReplaceAll(k, "_", "-")] = flag{values: []arg{{v.text, v}}, at: v}
			}
		}
	}
	s.limits()
	s.slots, s.host = nil, nil
	if s.Model = c.str("model_loading_config", "model_source"); s.Model == "" {
		s.Model = c.str("model_loading_config", "model_id")
	}
	if n, ok := c.count("lora_config", "max_num_adapters_per_replica"); ok {
		s.Host, s.LoRA, s.RunTime = n, true, true
	}
	s.GPUs = s.number(1, "tensor-parallel-size") * s.number(1, "pipeline-parallel-size")
	f.Servers = append(f.Servers, s)
}

// resolve finds the servers of adapters that controllers load.
func (f *Fleet) resolve() {
	for _, a := range f.unresolved {
		for _, s := range f.Servers {
			if a.matches(s) {
				a.server = s
				break
			}
		}
		if a.server == nil && len(f.Servers) == 1 && len(a.selector) == 0 && a.Base == "" {
			a.server = f.Servers[0]
		}
	}
}

// matches reports whether an adapter's controller would load it on a server.
func (a *Adapter) matches(s *Server) bool {
	switch a.Kind {
	case modelAdapter:
		if len(a.selector) == 0 {
			return a.Base != "" && (a.Base == s.labels["model.aibrix.ai/name"] || slices.Contains(s.Served, a.Base))
		}
		for k, v := range a.selector {
			if s.labels[k] != v {
				return false
			}
		}
		return true
	case "ConfigMap":
		return slices.Contains(s.volumes, a.selector["configMap"]) || a.Base != "" && a.Base == s.Model
	}
	return a.Base == s.Name || a.Base == s.Model || slices.Contains(s.Served, a.Base)
}
