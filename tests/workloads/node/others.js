// SPDX-License-Identifier: Apache-2.0
// Spends its time in code of WebAssembly and of regular expressions, half in each.
'use strict';

// (func $spin (param $n i32) (result i32) (local $sum i32): sum += n * n, while --n)
const MODULE = [
  0, 0x61, 0x73, 0x6d, 1, 0, 0, 0,
  1, 6, 1, 0x60, 1, 0x7f, 1, 0x7f, // types
  3, 2, 1, 0, // functions
  7, 8, 1, 4, ...Buffer.from('spin'), 0, 0, // exports
  10, 30, 1, 28, 1, 1, 0x7f, // code, with one local variable
  0x03, 0x40, // loop
  0x20, 1, 0x20, 0, 0x20, 0, 0x6c, 0x6a, 0x21, 1, // sum += n * n
  0x20, 0, 0x41, 1, 0x6b, 0x22, 0, // n - 1
  0x0d, 0, 0x0b, // again if that is not 0; end
  0x20, 1, 0x0b, // sum; end
];
const { spin } = new WebAssembly.Instance(new WebAssembly.Module(Uint8Array.from(MODULE))).exports;
const TEXT = 'abcdefgh'.repeat(2000);

function byWasm() {
  return spin(1 << 20);
}

function byRegExp() {
  return /(?:[a-y]+)z/.test(TEXT.slice(0, 300)) ? 1 : 0;
}

function spend(call, ms) {
  const end = performance.now() + ms;
  let sum = 0;
  while (performance.now() < end)
    sum += call();
  return sum;
}

console.log('ready');
for (;;) {
  spend(byWasm, 20);
  spend(byRegExp, 20);
}
