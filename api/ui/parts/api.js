// SPDX-License-Identifier: Apache-2.0
// Requests to the daemon. Every answer that is not a success becomes an ApiError with the daemon's own words.

export const A = '/api/v1/observability';
export const PROFILING = A + '/profiling';
export const B = '/api/v1/profiling';

export class ApiError extends Error {
	constructor(status, body, retryAfter) {
		super(body?.message || body?.detail || (status ? `the daemon answered ${status}` : 'the daemon does not answer'));
		this.status = status;
		this.code = body?.error_code || '';
		this.details = body?.details || {};
		this.retryAfter = retryAfter;
		this.body = body;
	}
}

/** The tenant that the address names, for those who may see several. */
export const tenant = () => new URLSearchParams(location.search).get('tenant');

/** The address of another page, for the same tenant. */
export function sameTenant(href) {
	const to = new URL(href, location.href);
	if (!tenant() || to.origin !== location.origin || to.searchParams.has('tenant')) return href;
	to.searchParams.set('tenant', tenant());
	return to.pathname + to.search + to.hash;
}

async function send(method, path, body) {
	const headers = { Accept: 'application/json' };
	if (tenant()) headers['X-Tenant-ID'] = tenant();
	if (body !== undefined) headers['Content-Type'] = 'application/json';
	let answer;
	try {
		answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), credentials: 'same-origin', cache: 'no-cache' });
	} catch {
		throw new ApiError(0);
	}
	if (answer.ok) return answer;
	let problem = null;
	try { problem = await answer.json(); } catch { /* an answer without words */ }
	throw new ApiError(answer.status, problem, Number(answer.headers.get('Retry-After')) || 0);
}

export async function get(path, parameters) {
	const query = new URLSearchParams();
	for (const [name, v] of Object.entries(parameters || {})) if (v !== undefined && v !== null && v !== '') query.set(name, v);
	const text = query.toString();
	return (await send('GET', path + (text ? '?' + text : ''))).json();
}

/** Every page of a list, as one; `most` bounds what one looks at. */
export async function getAll(path, parameters, most) {
	const all = await get(path, { ...parameters, limit: 100 });
	while (all.nextCursor && all.items.length < most) {
		const next = await get(path, { ...parameters, limit: 100, cursor: all.nextCursor });
		all.items.push(...next.items);
		all.nextCursor = next.nextCursor;
	}
	return all;
}

/** The state of the daemon's parts; there is an answer also if it is not ready. */
export async function readiness() {
	try { return await get('/readyz'); } catch (e) { if (e.status !== 503 || !e.body?.status) throw e; return e.body; }
}

export async function text(path) { return (await send('GET', path)).text(); }

async function change(method, path, body) {
	const answer = await send(method, path, body);
	return answer.status === 204 ? null : answer.json().catch(() => null);
}

export const post = (path, body) => change('POST', path, body);
export const remove = path => change('DELETE', path);

/**
 * Runs a function again and again: `seconds` after it ended, later while the daemon is away, not while the tab is
 * hidden. The function returns false to stop; onError(error | null) says how the last run went.
 */
export function poll(run, seconds, onError) {
	let failures = 0, timer = 0, stopped = false, busy = false;
	const again = after => { if (!stopped) timer = setTimeout(step, after * 1000); };
	async function step() {
		if (busy || stopped || document.hidden) return;
		busy = true;
		let more = true;
		try {
			more = await run();
			if (failures) onError?.(null);
			failures = 0;
		} catch (e) {
			failures++;
			onError?.(e);
			if (e instanceof ApiError && e.status >= 400 && e.status < 500 && e.status !== 429 && e.status !== 408) more = false;
		}
		busy = false;
		if (more === false) stopped = true;
		again(failures ? Math.min(30, 2 ** (failures - 1)) : seconds);
	}
	document.addEventListener('visibilitychange', () => { clearTimeout(timer); if (!document.hidden) step(); });
	step();
	return { stop() { stopped = true; clearTimeout(timer); }, now() { clearTimeout(timer); step(); } };
}
