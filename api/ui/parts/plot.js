// SPDX-License-Identifier: Apache-2.0
// A value over time, drawn by uPlot. Loaded where a chart is shown; it is missing where the page was built without npm.
import uPlot from 'uplot';
import { textScale } from '../flame/dom.js';

const HEIGHT = 150, LEFT = 76, BELOW = 50, DAY_S = 86400;

/** Times as the rest of the page writes them; the day below its first one. */
function timeWords(_, splits, axis, space, step) {
	let before = '';
	return splits.map(s => {
		const at = new Date(1000 * s), day = at.toLocaleDateString(), clock = step < DAY_S ? at.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' }) : '', fresh = day !== before;
		before = day;
		return [clock, fresh || !clock ? day : ''].filter(Boolean).join('\n');
	});
}

const colour = name => () => getComputedStyle(document.documentElement).getPropertyValue(name);

/**
 * @param chart {x: times in ms, ascending; y: numbers or null; range: [fromMs, toMs] | null = as x; bars: around their x;
 * marked: [fromMs, toMs] | null; words(y) for the axis; pointed(index | null); picked(index); dragged(fromMs, toMs)}
 */
export function plot(holder, chart) {
	const scale = textScale(), axis = { font: `${12 * scale}px system-ui, sans-serif`, stroke: colour('--dim'), grid: { stroke: colour('--line'), width: 1 }, ticks: { show: false } };
	const mark = u => {
		if (!chart.marked) return;
		const [left, right] = chart.marked.map(ms => Math.min(u.over.clientWidth, Math.max(0, u.valToPos(ms / 1000, 'x'))));
		u.setSelect({ left, width: right - left, top: 0, height: u.over.clientHeight }, false);
	};
	const picked = u => { if (chart.picked && u.cursor.idx !== null) chart.picked(u.cursor.idx); };
	const u = new uPlot({
		width: holder.clientWidth, height: HEIGHT * scale, legend: { show: false },
		cursor: { y: false, drag: { x: Boolean(chart.dragged), setScale: false }, points: { show: !chart.bars } },
		scales: { x: chart.range ? { range: chart.range.map(ms => ms / 1000) } : {}, y: { range: (_, low, high) => [0, (high || 1) * 1.05] } },
		axes: [{ ...axis, size: BELOW * scale, values: timeWords }, { ...axis, size: LEFT * scale, values: (_, values) => values.map(chart.words) }],
		series: [{}, { stroke: colour('--focus'), fill: chart.bars ? colour('--focus') : undefined, width: chart.bars ? 0 : 2, points: { show: !chart.bars },
			paths: chart.bars ? uPlot.paths.bars({ size: [1], gap: 1 }) : undefined }],
		hooks: { ready: [mark], setCursor: [() => chart.pointed(u.cursor.idx)],
			setSelect: [() => { if (u.select.width) chart.dragged(...[0, u.select.width].map(w => 1000 * u.posToVal(u.select.left + w, 'x'))); }] },
	}, [chart.x.map(ms => ms / 1000), chart.y], holder);
	u.over.addEventListener('click', () => picked(u));
	new ResizeObserver(() => u.setSize({ width: holder.clientWidth, height: HEIGHT * scale })).observe(holder);
	addEventListener('themechange', () => u.redraw());
}
