// SPDX-License-Identifier: Apache-2.0
// node build.mjs TOOLS OUT: bundles the page with the esbuild that lies in TOOLS/node_modules. Names carry a hash of
// the content, so that browsers keep files for ever; pages become chunks that load when they are opened.
import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

const SCRIPT_LIMIT = 35 * 1024; // bytes after gzip of what one page needs, without the time line's library
const STYLE_LIMIT = 6 * 1024;

const [tools, out] = process.argv.slice(2).map(path => resolve(path));
const source = dirname(fileURLToPath(import.meta.url));
const esbuild = createRequire(join(tools, 'package.json'))('esbuild');
const common = { bundle: true, minify: true, outdir: out, metafile: true, legalComments: 'none', logLevel: 'warning' };

const scripts = await esbuild.build({ ...common, entryPoints: [join(source, 'main.js')], format: 'esm', target: 'es2022', splitting: true,
	entryNames: '[name]-[hash]', chunkNames: '[name]-[hash]', nodePaths: [join(tools, 'node_modules')] });
const styles = await esbuild.build({ ...common, stdin: { contents: '@import "uplot/dist/uPlot.min.css"; @import "./page.css";', loader: 'css', resolveDir: join(source, 'css'), sourcefile: 'pages.css' },
	entryNames: 'page-[hash]', nodePaths: [join(tools, 'node_modules')] });

const size = file => gzipSync(readFileSync(file)).length;
const entry = (result, name) => Object.entries(result.metafile.outputs).find(([, o]) => o.entryPoint && basename(o.entryPoint) === name)[0];
const main = entry(scripts, 'main.js'), style = entry(styles, 'pages.css');

/** The files that a page loads: the entry, its chunk, and all their static imports. */
function needed(file, seen = new Set()) {
	if (seen.has(file)) return seen;
	seen.add(file);
	for (const i of scripts.metafile.outputs[file].imports) if (i.kind === 'import-statement') needed(i.path, seen);
	return seen;
}

let failed = false;
for (const [file, output] of Object.entries(scripts.metafile.outputs)) {
	if (!output.entryPoint?.includes('pages/')) continue;
	const bytes = [...needed(file, needed(main))].reduce((sum, f) => sum + size(f), 0);
	console.log(`${basename(output.entryPoint)}: ${bytes} bytes`);
	if (bytes > SCRIPT_LIMIT) failed = true;
}
console.log(`${basename(style)}: ${size(style)} bytes`);
if (failed || size(style) > STYLE_LIMIT) throw new Error('the page is larger than its budget');

const page = readFileSync(join(source, 'index.html'), 'utf8');
writeFileSync(join(out, 'index.html'), page.replace('/ui/main.js', '/ui/' + basename(main)).replace('/ui/css/page.css', '/ui/' + basename(style)));
