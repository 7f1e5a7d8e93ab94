// SPDX-License-Identifier: Apache-2.0
// Mouse, wheel and touch on the canvas, and the divider beside the table.
import { ROW } from './view.js';

function dragTo(x, drag, e) {
	const { view } = x, dx = e.clientX - drag.x, dy = e.clientY - drag.y;
	drag.moved ||= Math.abs(dx) + Math.abs(dy) > 5;
	if (!drag.moved) return;
	const shift = dx / view.width * (drag.to - drag.from);
	view.scroll = drag.scroll - dy / ROW * (view.flipped ? -1 : 1);
	view.clampScroll();
	view.window(drag.from - shift, drag.to - shift);
}

/** Plain wheel scrolls rows while there are any left, then the page; with Ctrl it zooms around the pointer. */
function wheel(x, e) {
	const { view } = x, span = view.to - view.from, point = view.from + e.offsetX / view.width * span;
	if (e.ctrlKey) {
		const factor = Math.exp(e.deltaY * 0.004);
		view.window(point - (point - view.from) * factor, point + (view.to - point) * factor);
	} else if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
		const shift = (e.deltaX || e.deltaY) / view.width * span;
		view.window(view.from + shift, view.to + shift);
	} else {
		const was = view.scroll;
		view.scrollBy((view.flipped ? -1 : 1) * Math.sign(e.deltaY) * Math.max(1, Math.round(Math.abs(e.deltaY) / 40)));
		if (view.scroll === was) return;
	}
	e.preventDefault();
}

function attachCanvas(x) {
	const { canvas, view } = x, at = e => view.at(e.offsetX, e.offsetY);
	let drag = null;
	canvas.addEventListener('pointerdown', e => { drag = { x: e.clientX, y: e.clientY, from: view.from, to: view.to, scroll: view.scroll, moved: false }; });
	canvas.addEventListener('pointermove', e => {
		if (!x.model) return;
		if (drag && e.buttons & 1) return dragTo(x, drag, e);
		const node = at(e);
		if (node !== view.hovered) { view.hovered = node; view.paint(); }
		if (x.pinned) return;
		if (node >= 0 && x.menu.hidden) x.showDetails(node, e); else x.details.hidden = true;
	});
	canvas.addEventListener('pointerleave', () => { view.hovered = -1; x.details.hidden ||= !x.pinned; view.paint(); });
	canvas.addEventListener('click', e => {
		const moved = drag?.moved;
		drag = null;
		if (moved || !x.model) return;
		x.tree.focus({ preventScroll: true }); // before anything changes that a focus would have laid out first
		x.menu.hidden = true;
		const node = at(e);
		if (node >= 0) x.zoom(node, node !== view.zoomed);
	});
	canvas.addEventListener('contextmenu', e => { e.preventDefault(); x.openMenu(at(e), e.clientX, e.clientY); });
	canvas.addEventListener('wheel', e => { if (x.model) wheel(x, e); }, { passive: false });
}

export function attachPointer(x) {
	attachCanvas(x);
	const { divider } = x, width = left => {
		const box = x.root.getBoundingClientRect();
		const share = Math.min(80, Math.max(10, 100 * (left - box.left) / box.width));
		x.tablePane.style.flexBasis = share + '%';
		divider.setAttribute('aria-valuenow', share.toFixed(0));
		x.view.resize();
	};
	divider.addEventListener('pointermove', e => { if (e.buttons & 1) { divider.setPointerCapture(e.pointerId); width(e.clientX); } });
	divider.addEventListener('keydown', e => {
		const step = { ArrowLeft: -40, ArrowRight: 40 }[e.key];
		if (step) { e.stopPropagation(); width(divider.getBoundingClientRect().left + step); }
	});
	document.addEventListener('pointerdown', e => {
		delete document.documentElement.dataset.keys;
		x.settle();
		if (!x.menu.contains(e.target)) x.menu.hidden = true;
	});
}
