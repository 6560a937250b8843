// What the page asks for, answered by WebAssembly in a Web Worker. It takes the place of the server's api.js.
//
// A run cannot be interrupted: what is given up ends with its worker, and a spare one takes over.

const compiled = compile();

async function compile() {
  const response = await fetch('lorasim.wasm.gz');
  if (!response.ok) throw new Error(`lorasim.wasm.gz: ${response.status} ${response.statusText}`);
  const plain = response.body.pipeThrough(new DecompressionStream('gzip'));
  return WebAssembly.compileStreaming(new Response(plain, { headers: { 'Content-Type': 'application/wasm' } }));
}

// logs are the files that the user chose: pairs of path and bytes. Each worker has a copy.
const logs = [], maxLog = 64 << 20; // bytes

// Engine is a worker with the calls that it has not answered.
class Engine {
  constructor() {
    this.calls = new Map();
    this.worker = new Worker('worker.js');
    this.worker.onmessage = ({ data }) => this.answer(data);
    this.worker.onerror = e => this.fail(new Error(e.message));
    this.ready = compiled.then(module => this.worker.postMessage({ module }));
    this.ready.catch(err => this.fail(err));
    for (const [path, bytes] of logs) this.keep(path, bytes);
  }

  // keep gives the worker a log, before all later calls.
  keep(path, bytes) { this.ready.then(() => this.worker.postMessage({ id: 0, call: 'keep', args: [path, bytes] }), () => {}); }

  answer({ id, done, error, value, event }) {
    const call = this.calls.get(id);
    if (!call) return;
    if (!done) return call.event(JSON.parse(event));
    this.calls.delete(id);
    if (error) call.reject(new Error(error));
    else call.resolve(value);
  }

  fail(err) {
    for (const call of this.calls.values()) call.reject(err);
    this.calls.clear();
  }

  ask(call, args, event) {
    const id = ++Engine.last;
    return new Promise((resolve, reject) => {
      this.calls.set(id, { resolve, reject, event });
      this.ready.then(() => this.worker.postMessage({ id, call, args }), reject);
    });
  }

  end() {
    this.worker.terminate();
    this.fail(new Error('given up'));
  }
}
Engine.last = 0;

let engine = new Engine(), spare = null, latest = '';

// replace ends the worker at work.
function replace() {
  engine.end();
  engine = spare || new Engine();
  spare = new Engine();
}

async function start() {
  const value = JSON.parse(await engine.ask('start', []));
  spare = new Engine();
  return value;
}

async function run(query, signal, event) {
  latest = JSON.stringify(query);
  if (signal.aborted) return;
  const mine = engine, stop = () => { if (mine === engine && mine.calls.size > 0) replace(); };
  signal.addEventListener('abort', stop);
  try {
    await mine.ask('run', [latest], e => { if (!signal.aborted) event(e); });
  } catch (err) {
    if (!signal.aborted) throw err;
  } finally {
    signal.removeEventListener('abort', stop);
  }
}

// upload keeps a log in this page, and returns its path.
async function upload(file) {
  if (file.size > maxLog) throw new Error(`${file.name} has ${(file.size / 2 ** 20).toFixed(0)} MiB, expected at most ${maxLog >> 20} MiB; lorasim explore takes larger logs`);
  const path = `log${logs.length + 1}/${file.name}`, bytes = new Uint8Array(await file.arrayBuffer());
  logs.push([path, bytes]);
  for (const e of [engine, spare]) if (e) e.keep(path, bytes);
  return path;
}

async function replay(run) { return JSON.parse(await engine.ask('replay', [latest, run])); }

// bench returns the least time of n runs of 2000 requests under a policy, ms.
async function bench(policy, n) { return engine.ask('bench', [policy, n]); }

export { start, run, upload, replay, bench };
