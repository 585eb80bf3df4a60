"""A model server that speaks the real protocol and knows no model.

`$ARENA_HOME/fail_probe` makes generation fail, `$ARENA_HOME/fail_ADAPTER` that of one adapter; `$ARENA_HOME/slow_ADAPTER`
keeps each of its streams waiting for half a second. A stream has as many pieces as its prompt's last word says, ten in a
second.
"""

import argparse
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HOME = Path(os.environ["ARENA_HOME"])
TOKEN = os.environ["ARENA_MODEL_SERVER_TOKEN"]
ADAPTERS = {}


class Handler(BaseHTTPRequestHandler):
    def reply(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_args):
        pass

    def allowed(self):
        if self.headers.get("Authorization") == f"Bearer {TOKEN}":
            return True
        self.reply(401, {"code": "bad-token", "message": "no"})
        return False

    def do_GET(self):
        if self.path == "/healthz":
            self.reply(200, {"ok": True, "model_digest": "sha256:" + "0" * 64})
        elif self.allowed():
            self.reply(200, [{"name": name} for name in ADAPTERS])

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.allowed():
            return
        if self.path == "/adapters":
            files = {name: Path(place["path"]).read_bytes() for name, place in body["files"].items()}
            status = 200 if body["name"] in ADAPTERS else 201
            ADAPTERS[body["name"]] = files["adapter_model.safetensors"].decode()
            self.reply(status, {"name": body["name"]})
        elif body["adapter"] not in ADAPTERS:
            self.reply(404, {"code": "unknown-adapter", "message": f"{body['adapter']} is not loaded"})
        elif any((HOME / f"fail_{what}").exists() for what in ("probe", body["adapter"])):
            self.reply(500, {"code": "generation-failed", "message": "out of luck"})
        elif self.path == "/generate_stream":
            self.stream(body)
        elif self.path == "/prove":
            self.reply(200, {"adapter": body["adapter"], "tokens": 1})
        else:
            finish = {"reason": "stop", "prompt_tokens": 1, "completion_tokens": 3}
            text = f"{body['adapter']} says {ADAPTERS[body['adapter']]}"
            self.reply(200, {"results": [{"text": text, "finish": finish}], "seconds": 0.1})

    def stream(self, body):
        prompt = body.get("prompt") or body["messages"][-1]["content"]
        self.send_response(200)
        self.end_headers()
        if (HOME / f"slow_{body['adapter']}").exists():
            time.sleep(0.5)
        last = prompt.split()[-1]
        for n in range(pieces := int(last) if last.isdigit() else 3):
            self.wfile.write(json.dumps({"text": f"{n} "}).encode() + b"\n")
            time.sleep(0.1)
        finish = {"reason": "stop", "prompt_tokens": 1, "completion_tokens": pieces}
        self.wfile.write(json.dumps({"finish": finish}).encode() + b"\n")

    def do_DELETE(self):
        if self.allowed():
            ADAPTERS.pop(self.path.removeprefix("/adapters/"), None)
            self.send_response(204)
            self.end_headers()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model")
    parser.add_argument("--port", type=int)
    given = parser.parse_args()
    if given.model == "missing-model":
        sys.exit("no such model: missing-model")
    ThreadingHTTPServer(("127.0.0.1", given.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
