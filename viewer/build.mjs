// Build the viewer into the Python package, with the fingerprint of the sources it was built from.
//
// `node build.mjs` writes the viewer, that of surfaces, the playground and SOURCES; `--tests` bundles the tests into out/.

import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const target = join(here, "../src/splinecam/viewer/static");
const common = {
  bundle: true,
  format: "esm",
  target: "es2022",
  logLevel: "warning",
  loader: { ".wasm": "binary" },
  plugins: [{ name: "text", setup: bundleAsText }],
};

if (process.argv.includes("--tests")) {
  const out = join(here, "out");
  rmSync(out, { recursive: true, force: true });
  const tests = readdirSync(join(here, "test")).filter((name) => name.endsWith(".test.ts"));
  await build({
    ...common,
    entryPoints: tests.map((name) => join(here, "test", name)),
    outdir: out,
    outExtension: { ".js": ".mjs" },
    platform: "node",
    sourcemap: "inline",
  });
} else {
  mkdirSync(target, { recursive: true });
  const entryPoints = {
    viewer: join(here, "src/main.ts"),
    surface: join(here, "src/solid/main.ts"),
    style: join(here, "src/style.css"),
    playground: join(here, "src/play/main.ts"),
    "playground-style": join(here, "src/play/style.css"),
  };
  const options = { ...common, entryPoints, outdir: target, minify: true, legalComments: "none" };
  await build({ ...options, charset: "utf8" });
  writeFileSync(join(target, "SOURCES"), `${fingerprint()}\n`);
}

/** Make a script that is imported as "name?text" the text of a bundle, for workers. */
function bundleAsText({ onResolve, onLoad }) {
  onResolve({ filter: /\?text$/ }, ({ path, resolveDir }) => ({
    path: join(resolveDir, path.replace("?text", ".ts")),
    namespace: "text",
  }));
  onLoad({ filter: /.*/, namespace: "text" }, async ({ path }) => {
    const made = await build({ ...common, entryPoints: [path], minify: true, write: false });
    return { contents: made.outputFiles[0].text, loader: "text" };
  });
}

/** The SHA-256 of all sources, in the order of their names; a test computes the same in Python. */
function fingerprint() {
  const hash = createHash("sha256");
  const files = [
    "build.mjs",
    "package-lock.json",
    "kernel/kernel.wasm",
    ...walk(join(here, "src")),
  ];
  for (const name of files.sort()) {
    hash.update(`${name}\0`);
    hash.update(readFileSync(join(here, name)));
    hash.update("\0");
  }
  return hash.digest("hex");
}

function walk(folder) {
  return readdirSync(folder).flatMap((name) => {
    const path = join(folder, name);
    return statSync(path).isDirectory() ? walk(path) : [relative(here, path).replaceAll("\\", "/")];
  });
}
