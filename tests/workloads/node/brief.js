// SPDX-License-Identifier: Apache-2.0
// Works in functions of its own for 0.2 s of CPU time, and ends.
'use strict';

function burn(count) {
	let total = 0;
	for (let i = 0; i < count; i++)
		total += i * i % 7;
	return total;
}

const squares = count => Array.from({ length: count }, () => burn(100));

function work(ns) {
	const begin = process.cpuUsage();
	for (;;) {
		const { user, system } = process.cpuUsage(begin);
		if ((user + system) * 1000 >= ns)
			return;
		squares(20);
		burn(3000);
	}
}

work(2e8);
