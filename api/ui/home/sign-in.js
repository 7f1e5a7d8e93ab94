// SPDX-License-Identifier: Apache-2.0
'use strict';
document.getElementById('form').addEventListener('submit', async event => {
	event.preventDefault();
	const message = document.getElementById('message');
	message.textContent = '';
	const answer = await fetch('/sign-in', { method: 'POST', headers: { 'Content-Type': 'application/json' },
		body: JSON.stringify({ token: document.getElementById('token').value.trim() }) }).catch(() => null);
	if (answer && answer.ok) {
		const next = new URLSearchParams(location.search).get('next') || '/';
		// Only a path of this site: `//other` would leave it.
		location.replace((/^\/(?![/\\])/.test(next) ? next : '/') + location.hash);
		return;
	}
	message.textContent = answer ? (await answer.json()).detail : 'The agent does not answer.';
});
