// Bundle the explorer into one script and one style, with the licences of what is in them.

import { build } from "esbuild";
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";

const out = "../bundle";
mkdirSync(out, { recursive: true });
const result = await build({
  entryPoints: ["src/main.js"],
  bundle: true,
  minify: true,
  format: "iife",
  target: ["chrome111", "firefox115", "safari16.4"],
  charset: "ascii",
  legalComments: "none",
  metafile: true,
  outfile: `${out}/explorer.js`,
});

const packages = new Set();
for (const input of Object.keys(result.metafile.inputs)) {
  const found = input.match(/node_modules\/((?:@[^/]+\/)?[^/]+)\//);
  if (found) packages.add(found[1]);
}
const notices = [...packages].sort().map((name) => {
  const folder = `node_modules/${name}`;
  const { version, license } = JSON.parse(readFileSync(`${folder}/package.json`, "utf8"));
  const found = readdirSync(folder, { withFileTypes: true }).filter((entry) => /^(licen[cs]e|notice|copyright)/i.test(entry.name));
  const files = found.flatMap((entry) => (entry.isDirectory() ? readdirSync(`${folder}/${entry.name}`).map((name) => `${entry.name}/${name}`) : [entry.name])).sort();
  const texts = files.map((file) => readFileSync(`${folder}/${file}`, "utf8").replaceAll("\r\n", "\n").trim());
  return [`${name} ${version} (${license})`, ...texts].join("\n\n");
});
writeFileSync(`${out}/LICENCES.txt`, notices.join(`\n\n${"-".repeat(80)}\n\n`) + "\n");

for (const file of ["explorer.js", "explorer.css"]) {
  const text = readFileSync(`${out}/${file}`, "utf8");
  // Inside the page the text stands in an element that these would end.
  if (/<\/(script|style)|<!--/i.test(text)) writeFileSync(`${out}/${file}`, text.replace(/<\/(script|style)/gi, "<\\/$1").replaceAll("<!--", "<\\!--"));
}
