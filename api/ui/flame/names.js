// SPDX-License-Identifier: Apache-2.0
// Names for people: what may be shown of them, and the part that tells frames apart. No DOM here.

/** Control, bidirectional and zero-width characters are shown, never obeyed; length is bounded. */
export function visible(name) {
	const shown = name.replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
		c => '\\u{' + c.codePointAt(0).toString(16) + '}');
	return shown.length > 2000 ? shown.slice(0, 2000) + '…' : shown;
}

/** Drops the text between matching brackets: template arguments, parameters. */
function dropBrackets(name, open, close, mark) {
	let depth = 0, out = '';
	for (let i = 0; i < name.length; i++) {
		const c = name[i];
		if (c === open && !(open === '<' && /operator<?$/.test(out))) {
			if (depth++ === 0) out += mark;
		} else if (c === close && depth > 0 && name[i - 1] !== '-') {
			depth--;
		} else if (depth === 0) {
			out += c;
		}
	}
	return depth ? name : out;
}

/**
 * The part of a name that tells frames apart. Go drops the import path, C++ and Rust drop arguments and outer
 * namespaces, Java keeps Class.method; names with a file (Python, Node) keep the function.
 */
export function shortName(name, kind) {
	if (name.startsWith('[')) return name;
	if (/ \S*[/\\]\S*:\d+$/.test(name)) return name.slice(0, name.lastIndexOf(' '));
	if (kind === 3 || /^[\w.~-]+(\/[\w.~-]+)+\.[\w(*]/.test(name)) {
		const slash = name.replace(/\[.*$/, '').lastIndexOf('/');
		return name.slice(slash + 1).replace(/\[\.\.\.\]/g, '[…]');
	}
	if (/^(?:_R|_ZN)/.test(name)) return name;
	if (name.includes('::')) {
		let short = name.replace(/::h[0-9a-f]{16}$/, '').replace(/\{\{closure\}\}/g, 'closure')
			.replace(/\(anonymous namespace\)/g, '{anon}');
		const rustImpl = /^<(.+?) as .+?>::(.+)$/.exec(short);
		if (rustImpl) short = rustImpl[1] + '::' + rustImpl[2];
		short = dropBrackets(short, '<', '>', '<…>');
		short = dropBrackets(short, '(', ')', '').replace(/ const$/, '').replace(/^.* (?=\S+::\S+$)/, '');
		const parts = short.split('::').filter(p => p && p !== '<…>');
		return parts.slice(-2).join('::') || name;
	}
	const java = /^((?:[a-z_][\w$]*[./])+)([A-Z][\w$]*(?:[.:]+[\w$<>]+)+)/.exec(name);
	if (java) return java[2];
	return name.includes('(') ? dropBrackets(name, '(', ')', '').trim() || name : name;
}
