// SPDX-License-Identifier: Apache-2.0
/* shares.js SECONDS: says "ready" and spends CPU time in three functions, five, three and two parts of it; one of them is called
 * back by sort(). */
"use strict";
let sink = 0;

function spend(turns) {
  for (let i = 0; i < turns * 20000; i++) sink = (sink * 31 + i) | 0;
}

function most() {
  spend(5);
}

function some() {
  spend(3);
}

function calledBack() {
  spend(2);
  return 0;
}

console.log("ready");
for (const end = Date.now() + 1000 * process.argv[2]; Date.now() < end; ) {
  most();
  some();
  [2, 1].sort(calledBack);
}
