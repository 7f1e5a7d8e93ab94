// SPDX-License-Identifier: Apache-2.0
// The canvas. Its cost depends on pixels, not on nodes: in each visible row a binary search finds the left edge, and a
// node narrower than a pixel starts a run that jumps to the first node behind the next pixel. The canvas is never
// taller than the window; rows are scrolled in code, so that no browser limit is met however deep the stacks are.
import { isDark, textScale } from './dom.js';
import { firstBeyond, fnv, functionModule, functionName, nodeAt } from './model.js';
import { shortName, visible } from './names.js';

const TEXT = 12 * textScale(); // px
export const ROW = Math.round(20 * textScale());
const LETTERS_MIN = 3;

const HUES = {
	light: ['#f9b1bb', '#f8b59e', '#ebbe8a', '#d4c988', '#b5d398', '#96d9b4', '#82d9d3', '#86d5ee', '#9dccfd', '#bcc2fe', '#d8b8f1', '#eeb2d9'],
	lightEdge: ['#ac6a75', '#ac6e59', '#a17745', '#8c8142', '#6f8b53', '#4f906f', '#36908b', '#3c8ca3', '#5884b1', '#767bb2', '#9072a6', '#a26c90'],
	dark: ['#80424d', '#804632', '#764f1a', '#635916', '#48612c', '#236647', '#006762', '#006279', '#305b86', '#4f5287', '#674a7b', '#774467'],
	darkEdge: ['#bd7983', '#bc7d67', '#b18654', '#9b9151', '#7e9a62', '#5e9f7d', '#47a09b', '#4c9bb3', '#6693c1', '#858ac2', '#9f81b6', '#b27ba0'],
};
const DELTA = {
	light: ['#3182bd', '#84aecd', '#c0d0dd', '#e2e4e7', '#efd3b8', '#eca769', '#e6750a'],
	dark: ['#3182bd', '#2b628c', '#2c4559', '#33373d', '#59422c', '#8c5522', '#c4630d'],
};
const GREY = {
	light: { kernel: ['#c9cdd4', '#7b818c'], none: ['#e3e3e3', '#8d8d8d'], off: ['#eceef1', '#b6bcc4'], run: '#aab1bb', text: '#1f2328' },
	dark: { kernel: ['#454b55', '#8b93a0'], none: ['#33373d', '#7d8590'], off: ['#1d232b', '#4a525c'], run: '#59626e', text: '#f0f3f6' },
};

export class FlameView {
	constructor(canvas) {
		this.canvas = canvas;
		this.context = canvas.getContext('2d');
		this.zoomed = 0;
		this.selected = -1;
		this.hovered = -1;
		this.hits = null;
		this.scroll = 0;
		this.flipped = false;
		this.byShare = false;
		this.dark = false;
	}

	show(model) {
		this.model = model;
		const m = model;
		this.hue = Uint8Array.from({ length: m.functions }, (_, f) => fnv(functionModule(m, f)) % 12);
		this.short = new Array(m.functions);
		if (this.zoomed >= m.count) this.zoomed = 0;
		this.from = m.x[this.zoomed];
		this.to = this.from + m.w[this.zoomed];
	}

	resize() {
		const box = this.canvas.parentElement.getBoundingClientRect(), ratio = devicePixelRatio || 1;
		this.width = Math.max(50, box.width);
		this.height = Math.max(50, box.height);
		this.canvas.width = Math.round(this.width * ratio);
		this.canvas.height = Math.round(this.height * ratio);
		this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
		this.clampScroll();
		this.paint();
	}

	/** Zooms to a node and keeps it in sight; the caller draws. */
	zoom(node) {
		const m = this.model;
		this.zoomed = node;
		this.from = m.x[node];
		this.to = this.from + m.w[node];
		this.scrollTo(m.level[node]);
	}

	/** Free horizontal window, by wheel and keys; stays inside the whole. */
	window(from, to) {
		const m = this.model, span = Math.min(m.w[0], Math.max(to - from, m.w[0] * 1e-9));
		this.from = Math.min(Math.max(0, from), m.w[0] - span);
		this.to = this.from + span;
		this.paint();
	}

	get rowsInSight() { return Math.max(1, Math.floor(this.height / ROW)); }
	get scrollMax() { return Math.max(0, this.model.depth + 2 - this.rowsInSight); }
	clampScroll() { if (this.model) this.scroll = Math.min(Math.max(0, this.scroll), this.scrollMax); }
	scrollTo(level) {
		if (level < this.scroll || level >= this.scroll + this.rowsInSight - 1)
			this.scroll = Math.max(0, level - 2);
		this.clampScroll();
	}
	scrollBy(rows) { this.scroll += rows; this.clampScroll(); this.paint(); }

	rowTop(level) {
		const y = (level - this.scroll) * ROW;
		return this.flipped ? this.height - ROW - y : y;
	}

	/** Node under a point of the canvas, or -1. */
	at(px, py) {
		const row = this.flipped ? (this.height - py) / ROW : py / ROW;
		const level = Math.floor(row + this.scroll);
		return nodeAt(this.model, level, this.from + px / this.width * (this.to - this.from));
	}

	box(node) {
		const m = this.model, scale = this.width / (this.to - this.from);
		const left = Math.max(0, (m.x[node] - this.from) * scale);
		const right = Math.min(this.width, (m.x[node] + m.w[node] - this.from) * scale);
		return { left, top: this.rowTop(m.level[node]), width: right - left };
	}

	label(f) {
		return this.short[f] ??= visible(shortName(functionName(this.model, f), this.model.doc.fn.kind[f]));
	}

	fill(node) {
		const m = this.model, f = m.fn[node], shade = this.dark ? 'dark' : 'light', grey = GREY[shade];
		const kind = m.doc.fn.kind[f];
		if (this.hits && !this.hits[f]) return grey.off;
		if (this.hits) return ['#ffd400', '#a17700'];
		if (m.delta) return this.deltaColour(m.tint[node]);
		if (this.byShare) {
			const share = Math.min(1, m.self[node] / m.total[0] * 12), i = this.dark ? 1 : 0;
			const mix = (a, b) => Math.round(a + (b - a) * Math.sqrt(share));
			const [low, high] = [[[238, 240, 243], [230, 117, 16]], [[40, 46, 54], [196, 86, 8]]][i];
			const c = low.map((v, k) => mix(v, high[k]));
			return [`rgb(${c})`, grey.kernel[1]];
		}
		if (kind === 2) return grey.kernel;
		if (kind === 0 || kind === 6) return grey.none;
		return [HUES[shade][this.hue[f]], HUES[shade + 'Edge'][this.hue[f]]];
	}

	/** Seven steps from blue (less) over grey to orange (more). */
	deltaColour(delta) {
		const steps = DELTA[this.dark ? 'dark' : 'light'], part = Math.max(-1, Math.min(1, delta / this.model.deltaLimit));
		return [steps[3 + Math.round(part * 3)], GREY[this.dark ? 'dark' : 'light'].kernel[1]];
	}

	paint() {
		if (this.queued) return;
		this.queued = true;
		requestAnimationFrame(() => { this.queued = false; this.draw(); });
	}

	draw() {
		const m = this.model, c = this.context;
		if (!m || !this.width) return;
		this.dark = isDark(); // once: asking for each frame took most of the time
		const grey = GREY[this.dark ? 'dark' : 'light'], scale = this.width / (this.to - this.from || 1);
		c.clearRect(0, 0, this.width, this.height);
		c.font = TEXT + 'px system-ui, -apple-system, "Segoe UI", sans-serif';
		c.textBaseline = 'middle';
		this.letter ??= c.measureText('abcdefghijklmnopqrstuvwxyz').width / 26;
		const end = Math.min(m.depth, this.scroll + this.rowsInSight + 1);
		for (let level = Math.floor(this.scroll); level <= end; level++)
			this.drawRow(m.rows[level], this.rowTop(level), scale, grey);
		if (this.selected >= 0) this.outline(this.selected);
		if (this.hovered >= 0 && this.hovered !== this.selected) this.outline(this.hovered, true);
	}

	drawRow(row, top, scale, grey) {
		const m = this.model, c = this.context;
		for (let k = firstBeyond(m, row, this.from); k < row.length; k++) {
			const node = row[k], x = (m.x[node] - this.from) * scale;
			if (x >= this.width) break;
			const width = m.w[node] * scale;
			if (width < 1) {
				k = this.drawRun(row, k, top, scale, grey);
				continue;
			}
			const left = Math.max(0, x), right = Math.min(this.width, x + width);
			const [fill, edge] = this.fill(node);
			c.fillStyle = fill;
			c.globalAlpha = m.level[node] < m.level[this.zoomed] ? 0.55 : 1;
			c.fillRect(left, top, right - left, ROW - 1);
			if (right - left >= 3) {
				c.fillStyle = edge;
				c.fillRect(right - 1, top, 1, ROW - 1);
				c.fillRect(left, top + ROW - 2, right - left, 1);
			}
			const letters = Math.floor((right - left - 6) / this.letter);
			if (letters >= LETTERS_MIN) this.drawLabel(node, left + 3, top, letters, grey);
			c.globalAlpha = 1;
		}
	}

	/** Nodes under a pixel, as one grey bar up to the next gap; yellow if a hit hides in it. */
	drawRun(row, k, top, scale, grey) {
		const m = this.model, c = this.context;
		const left = (m.x[row[k]] - this.from) * scale;
		let right = left, hit = false;
		for (; k < row.length; k++) {
			const node = row[k], x = (m.x[node] - this.from) * scale, width = m.w[node] * scale;
			if (width >= 1 || x > right + 1 || x >= this.width) break;
			right = x + width;
			hit ||= this.hits !== null && this.hits[m.fn[node]] === 1;
			const next = firstBeyond(m, row, this.from + (Math.floor(x) + 1) / scale, k);
			if (next > k + 1) {
				for (let i = k; this.hits && !hit && i < next; i++) hit = this.hits[m.fn[row[i]]] === 1;
				right = Math.max(right, Math.floor(x) + 1);
				k = next - 1;
			}
		}
		c.fillStyle = hit ? '#ffd400' : grey.run;
		c.fillRect(left, top, Math.max(0.7, right - left), ROW - 1);
		return k - 1;
	}

	drawLabel(node, x, top, letters, grey) {
		const m = this.model, c = this.context, f = m.fn[node];
		const sign = !m.delta || Math.abs(m.delta[node]) < 0.05 ? '' : m.delta[node] > 0 ? '▲ ' : '▼ ';
		const text = sign + this.label(f);
		c.fillStyle = this.hits && this.hits[f] ? '#1f2328' : grey.text;
		if (m.flags && m.flags[node] & 1) c.font = 'italic ' + c.font;
		c.fillText(text.length > letters ? text.slice(0, letters - 1) + '…' : text, x, top + ROW / 2);
		if (m.flags && m.flags[node] & 1) c.font = c.font.replace('italic ', '');
	}

	outline(node, light) {
		const c = this.context, box = this.box(node);
		if (box.width <= 0) return;
		c.strokeStyle = this.dark ? '#8ab4f8' : '#0b57d0';
		c.lineWidth = light ? 1 : 2;
		c.strokeRect(box.left + 1, box.top + 1, Math.max(1, box.width - 2), ROW - 3);
	}
}
