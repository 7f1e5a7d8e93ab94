// SPDX-License-Identifier: Apache-2.0
// The page to open after the sign-in. No DOM here.

/** Only a path of this site: anything else in a link could lead away. */
export function nextPath(search) {
	const next = new URLSearchParams(search).get('next') || '/';
	return /^\/(?![/\\])[\x21-\x7e]*$/.test(next) && !next.includes('\\') ? next : '/';
}
