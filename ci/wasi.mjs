// Runs a program built for wasm32-wasip1 under node, as cargo's runner: ci/wasi.mjs PROGRAM ARGUMENTS...
import { readFile } from 'node:fs/promises';
import process, { argv } from 'node:process';
import { WASI } from 'node:wasi';

const [program, ...args] = argv.slice(2);
const wasi = new WASI({ version: 'preview1', args: [program, ...args], preopens: { '/': '/' }, returnOnExit: true });
const module = await WebAssembly.compile(await readFile(program));
process.exitCode = wasi.start(await WebAssembly.instantiate(module, wasi.getImportObject()));
