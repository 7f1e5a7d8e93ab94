// SPDX-License-Identifier: Apache-2.0
// Calls of every kind, in a worker thread. Answers each line of its input with the CPU time in ms that each branch
// has taken so far.
'use strict';
const { Worker, isMainThread, workerData } = require('worker_threads');

const BRANCHES = [bySort, byReduce, byReplace, byGenerator, byRecursion, byClass, byClosure, byEval];
const ROUNDS = [4, 2, 2, 3, 3, 2, 2, 2];

function burn(rounds) {
  let sum = 0;
  for (let i = 0; i < rounds * 20000; i++) sum = (sum + i * 7) % 1000003;
  return sum;
}

function bySort() {
  return [3, 1, 2].sort((a, b) => {
    burn(1);
    return a - b;
  });
}

function byReduce() {
  return [1, 2].reduce(function add(a, b) {
    return a + b + burn(2);
  });
}

function byReplace() {
  return 'a-b'.replace(/-/g, function replace() {
    return burn(2);
  });
}

function* generate() {
  for (let i = 0; i < 3; i++)
    yield burn(1);
}

function byGenerator() {
  let sum = 0;
  for (const value of generate())
    sum += value;
  return sum;
}

function recurse(depth) {
  if (depth > 0)
    return recurse(depth - 1) + 1;
  return burn(3);
}

function byRecursion() {
  return recurse(5);
}

class Thing {
  constructor() {
    this.value = burn(2);
  }
}

function byClass() {
  return new Thing();
}

function byClosure() {
  const inner = () => burn(2) + 1;
  return inner() + 1;
}

function byEval() {
  return made(2) + 1;
}

const made = new Function('rounds', 'return this.burn(rounds) + 1').bind({ burn });

function branch(which) {
  for (let i = 0; i < ROUNDS[which]; i++)
    BRANCHES[which]();
}

function work(times) {
  for (;;) {
    for (let i = 0; i < BRANCHES.length; i++) {
      const before = process.cpuUsage();
      branch(i);
      const used = process.cpuUsage(before);
      Atomics.add(times, i, used.user + used.system);
    }
  }
}

if (isMainThread) {
  const times = new Int32Array(new SharedArrayBuffer(4 * BRANCHES.length));
  new Worker(__filename, { workerData: times });
  console.log('ready');
  process.stdin.on('data', () => {
    console.log(JSON.stringify(Object.fromEntries(BRANCHES.map((f, i) => [f.name, Atomics.load(times, i) / 1000]))));
  });
} else {
  work(workerData);
}
