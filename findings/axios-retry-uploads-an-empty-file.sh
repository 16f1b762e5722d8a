#!/usr/bin/env bash
# axios-retry 4.5.0, retry-axios 4.0.3 and fetch-retry 6.0.0 over node-fetch (npm) repeat an upload of a stream with an empty body: the file at the server is empty, and the caller gets 200.
#
# Guess: a stream can be read once; so a library that sends a request again refuses one whose body was a stream, gives the first answer or error, or keeps the bytes.
# Seen (2026-12-01): a log of 10 lines is uploaded by PUT from fs.createReadStream. The server takes the body, and answers 503 once, or takes it and the connection breaks before the answer,
# so that the file is whole. The second PUT has "Content-Length: 0"; it gets 200, and the file that was whole is empty. axios-retry does this with its own settings, for it counts PUT as
# idempotent. got 14.6.6 and fetch-retry over Node's fetch raise an error, ky 1.14.3 sends the lines again; so do the minio 8.0.7 and @aws-sdk/lib-storage 3.1175.0 clients of S3, by hand.
# Needs Node 20 with npm and its package index. Ends with 0 while this is so.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-audit --no-fund axios@1.21.1 axios-retry@4.5.0 retry-axios@4.0.3 fetch-retry@6.0.0 node-fetch@3.3.2 got@14.6.6 ky@1.14.3
cat >run.mjs <<'JS'
import assert from "node:assert";
import { createReadStream, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import axios from "axios";
import axiosRetry from "axios-retry";
import fetchRetry from "fetch-retry";
import got from "got";
import ky from "ky";
import nodeFetch from "node-fetch";
import * as rax from "retry-axios";

const log = Array.from({ length: 10 }, (_, number) => `line 000${number}\n`).join("");
writeFileSync("log", log);
let fault, puts, kept;

// A server that keeps the body of each PUT; once, it answers 503 and keeps nothing, or keeps the body and breaks the connection before the answer.
const server = createServer(async (request, response) => {
  const parts = [];
  for await (const part of request) parts.push(part);
  const body = Buffer.concat(parts).toString();
  puts.push(body.length);
  const now = fault;
  fault = null;
  if (now !== "503") kept = body;
  if (now === "lost") request.socket.destroy();
  else response.writeHead(now === "503" ? 503 : 200, { "Content-Length": 0 }).end();
});
await new Promise((listens) => server.listen(0, "127.0.0.1", listens));
const url = `http://127.0.0.1:${server.address().port}/log`;

const byAxiosRetry = axios.create();
axiosRetry(byAxiosRetry, { retries: 3 });
const byRetryAxios = axios.create();
rax.attach(byRetryAxios);
const once = { retries: 2, retryDelay: 1, retryOn: [503] };
const ways = {
  "axios-retry": async (body) => (await byAxiosRetry.put(url, body)).status,
  "retry-axios": async (body) => (await byRetryAxios.put(url, body, { raxConfig: { retry: 3, retryDelay: 1 } })).status,
  "fetch-retry, node-fetch": async (body) => (await fetchRetry(nodeFetch)(url, { method: "PUT", body, ...once })).status,
  "fetch-retry, Node's fetch": async (body) => (await fetchRetry(fetch)(url, { method: "PUT", body, duplex: "half", ...once })).status,
  got: async (body) => (await got.put(url, { body })).statusCode,
  ky: async (body) => (await ky.put(url, { body, duplex: "half", retry: 2 })).status,
};
const found = {};
for (const [name, put] of Object.entries(ways)) {
  for (const way of ["503", "lost"]) {
    [fault, puts, kept] = [way, [], null];
    const end = await put(createReadStream("log")).catch((error) => `error: ${error.message}`);
    found[`${name}, ${way}`] = { end, kept };
    console.log(`${name}, fault ${way}: PUTs of [${puts}] bytes, the file has ${kept === null ? "none" : kept.length}; ${end}`);
  }
}
server.close();
server.closeAllConnections();
for (const fault of ["503", "lost"]) {
  for (const name of ["axios-retry", "retry-axios", "fetch-retry, node-fetch"]) assert.deepEqual(found[`${name}, ${fault}`], { end: 200, kept: "" });
  for (const name of ["got", "fetch-retry, Node's fetch"]) assert.ok(String(found[`${name}, ${fault}`].end).startsWith("error: "));
  assert.deepEqual(found[`ky, ${fault}`], { end: 200, kept: log });
}
JS
node run.mjs
echo "axios-retry 4.5.0, retry-axios 4.0.3, fetch-retry 6.0.0: as described"
