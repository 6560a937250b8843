// A Web Worker that runs lorasim. The first message is the compiled module; each further one is a call.
importScripts('wasm_exec.js');

let begun = null;

async function begin(module) {
  const go = new Go();
  go.run(await WebAssembly.instantiate(module, go.importObject)); // its promise ends with the program, which stays
}

onmessage = async ({ data }) => {
  if (data.module) {
    begun = begin(data.module);
    return;
  }
  await begun;
  const { id, call, args } = data;
  const done = (error, value) => postMessage({ id, done: true, error, value });
  switch (call) {
    case 'start': return done('', lorasim.start());
    case 'keep': return lorasim.keep(args[0], args[1]); // has no answer
    case 'run': return lorasim.run(args[0], event => postMessage({ id, event }), done);
    case 'replay': return lorasim.replay(args[0], args[1], done);
    case 'bench': return lorasim.bench(args[0], args[1], done);
  }
};
