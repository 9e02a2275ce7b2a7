#!/usr/bin/env bash
# Shows caproot in a terminal: serve, list, a tool call of an orchestrator, watch an edit, check. Needs
# `caproot` in PATH.
#
# `docs/demo/record` records this script. With CAPROOT_DEMO_FAST=1 the script does not pause.
set -euo pipefail

top=$(mktemp -d)
trap 'kill $(jobs -p) "${serve:-}" "${watch:-}" 2> "$top/kill" || true; rm -rf "$top"' EXIT
cd "$top"
mkdir -m 0700 run
export HOME=$top XDG_RUNTIME_DIR=$top/run

# skill NAME DESCRIPTION: writes a skill.
skill() {
  mkdir -p "skills/$1"
  local title=${1//-/ }
  printf -- '---\nname: %s\ndescription: %s\n---\n\n# %s\n' "$1" "$2" "${title^}" > "skills/$1/SKILL.md"
}
skill fill-forms "Fills PDF forms. Use when a form is blank."
skill triage-logs "Finds the first cause when a job fails."
skill write-changelog "Writes a changelog when asked."

pause() { [[ -n ${CAPROOT_DEMO_FAST:-} ]] || sleep "$1"; }

# show TEXT: prints a command as if a person typed the text.
show() {
  printf '\e[1;32m$\e[0m '
  local i
  for ((i = 0; i < ${#1}; i += 2)); do
    printf %s "${1:i:2}"
    pause 0.06
  done
  pause 0.3
  printf '\n'
}

# run TEXT: shows and runs a command. The command may fail, as `caproot check` does here.
run() {
  show "$1"
  eval "$1" || true
  pause "${2:-1.5}"
}

# follow TEXT: prints the lines of `caproot watch` up to a line with the text.
follow() {
  local line
  while IFS= read -r line <&4; do
    printf '%s\n' "$line"
    if [[ $line == *"$1"* ]]; then return; fi
  done
  return 1
}

show 'caproot serve --root skills &'
exec 3< <(exec caproot serve --root skills 2> log)
serve=$!
IFS= read -r line <&3
printf '%s\n' "${line/"$XDG_RUNTIME_DIR"//run/user/1000}"
pause 1

run 'caproot list'

run '# The orchestrator is elsewhere, without these files. It sends the tool call of a model:' 0.5
call='{"id":1,"method":"call","tool":"skills_read","arguments":{"package":"skill://skills/triage-logs"}}'
run "echo '$call' | caproot call" 2.5

show 'caproot watch &'
exec 4< <(exec caproot watch 2>&1)
watch=$!
follow 'synced'
pause 1
run "sed -i 's/Writes/Drafts/' skills/write-changelog/SKILL.md" 0
follow 'Drafts'
pause 1
run "sed -i 's/: Fills/: \"Fills/' skills/fill-forms/SKILL.md" 0
follow 'stale'
pause 2

run 'caproot check skills' 3
