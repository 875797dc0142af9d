// Prints the documents of YAML that stand on standard input as a list in JSON, as js-yaml reads them, which is YAML 1.2.
const { readFileSync } = require("node:fs");
const { loadAll } = require("js-yaml");

process.stdout.write(JSON.stringify(loadAll(readFileSync(0, "utf8"))));
