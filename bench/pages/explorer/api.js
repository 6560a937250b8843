// What the page asks for. A page without a server replaces this module.

// start returns knobs, policies, presets and the query to begin with.
export async function start() { return answer(await fetch('api/start')); }

// run sends a query and calls event for each part of the answer, until the answer or the signal ends.
export async function run(query, signal, event) {
  const response = await fetch('api/run', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(query), signal });
  if (!response.ok) await answer(response);
  const reader = response.body.getReader(), decoder = new TextDecoder();
  for (let rest = ''; ;) {
    const { value, done } = await reader.read();
    if (signal.aborted) return;
    rest += done ? decoder.decode() : decoder.decode(value, { stream: true });
    const lines = rest.split('\n');
    rest = lines.pop();
    for (const line of lines) event(JSON.parse(line));
    if (done) return;
  }
}

// upload keeps a log, and returns its path.
export async function upload(file) {
  const response = await fetch('api/log?name=' + encodeURIComponent(file.name), { method: 'POST', headers: { 'Content-Type': 'application/octet-stream' }, body: file });
  return (await answer(response)).path;
}

// replay returns the data of a run's replay.
export async function replay(run, signal) { return answer(await fetch('api/replay?run=' + encodeURIComponent(run), { signal })); }

async function answer(response) {
  const value = await response.json();
  if (!response.ok) throw new Error(value.error);
  return value;
}
