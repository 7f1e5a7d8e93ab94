// SPDX-License-Identifier: Apache-2.0
// Blocks its threads below chains of calls that differ each time, one round for each line of its input. Answers with the
// stacks that V8 itself reported at each stop. Usage: stops.js THREADS STOPS
'use strict';
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');

const DEPTH = 12;
const RUNS = 200; // between two stops, without one: the code is compiled meanwhile
const BLOCK_MS = 20;
const never = new Int32Array(new SharedArrayBuffer(4));

class Left {
  go(path, depth, stops) {
    return step(path, depth, stops) + 1;
  }
}

class Right {
  go(path, depth, stops) {
    let sum = depth;
    for (let i = 0; i < 1; i++)
      sum += step(path, depth, stops);
    return sum;
  }
}

class Made {
  constructor(path, depth, stops) {
    this.value = step(path, depth, stops);
  }
}

const WAYS = [new Left(), new Right()];

function small(path, depth, stops) {
  return smaller(path, depth, stops);
}

function smaller(path, depth, stops) {
  return step(path, depth, stops);
}

function large(path, depth, stops) {
  let sum = 0;
  try {
    for (let i = 0; i < path % 8; i++)
      sum += i * path + (sum >>> 3) - (i ^ depth) * 31 + Math.max(i, sum % 7);
    sum += step(path, depth, stops);
  } finally {
    sum = (sum * 31 + depth) | 0;
  }
  return sum;
}

function* generate(path, depth, stops) {
  yield step(path, depth, stops);
}

function step(path, depth, stops) {
  if (depth === 0)
    return stops ? stop(path, stops) : path * 31;
  const rest = path >>> 3, kept = rest | (path & 7) << 27;
  switch (path & 7) {
    case 0:
      return small(kept, depth - 1, stops);
    case 1:
      return WAYS[(depth + rest) % 2].go(kept, depth - 1, stops);
    case 2: {
      const made = (p, d, s) => step(p, d, s) - rest;
      return made(kept, depth - 1, stops);
    }
    case 3:
      return new Made(kept, depth - 1, stops).value;
    case 4:
      return [depth].map(function mapped(d) { return step(kept, d - 1, stops); })[0];
    case 5:
      return [1].reduce((sum, one) => sum + step(kept, depth - one, stops), 0);
    case 6:
      return generate(kept, depth - 1, stops).next().value;
    default:
      return large(kept, depth - 1, stops);
  }
}

function stop(path, stops) {
  stops.push(new Error().stack); block(); return path;
}

function block() {
  Atomics.wait(never, 0, 0, BLOCK_MS);
}

function describe(error, frames) {
  return frames.filter((frame) => frame.getFileName() === __filename)
    .map((frame) => `${frame.getFunctionName() || '(anonymous)'}:${frame.getLineNumber()};`).join('');
}

function random(state) { // of 30 bits
  state[0] = Math.imul(state[0], 1103515245) + 12345;
  return state[0] >>> 2;
}

function work(seed, count) {
  const stops = [], state = new Uint32Array([seed + 1]);
  for (let i = 0; i < count; i++) {
    for (let run = 0; run < RUNS; run++)
      step(random(state), DEPTH, null);
    step(random(state), DEPTH, stops);
  }
  return stops;
}

function round(first, threads, count) {
  const all = [];
  for (let i = 0; i < threads; i++)
    new Worker(__filename, { workerData: { seed: first + i, count } }).on('message', (stops) => {
      all.push(stops);
      if (all.length === threads)
        console.log(JSON.stringify(all.flat()));
    });
}

if (isMainThread) {
  const threads = Number(process.argv[2]), count = Number(process.argv[3]) / threads;
  let first = 0;
  console.log('ready');
  process.stdin.on('data', () => {
    round(first, threads, count);
    first += threads;
  });
} else {
  Error.stackTraceLimit = 200;
  Error.prepareStackTrace = describe;
  parentPort.postMessage(work(workerData.seed, workerData.count));
  setInterval(() => {}, 1e6);
}
