#!/usr/bin/env bash
# Talks to a running caproot with `buf curl`, which knows only what server reflection tells it:
# lists and describes the service, pastes a selectedCapabilityRoots JSON into ListSkills as it is,
# and reads one skill in pages. Over TCP and over the Unix socket.
#
#   buf_curl.sh HOST:PORT SOCKET SELECTED.json
#
# Takes `buf` from PATH, and python3 to look into JSON.
set -euo pipefail
(($# == 3)) || { sed -n '2,9p' "$0" >&2; exit 2; }
address=$1 socket=$2 selected=$3
service=caproot.v1.CapabilityService

fail() { echo "buf_curl: $*" >&2; exit 1; }

# The value at a path of keys and indexes in the JSON on stdin; empty where there is none.
at() {
  python3 -c '
import json, sys
value = json.load(sys.stdin)
for key in sys.argv[1:]:
    value = value[int(key)] if isinstance(value, list) else value.get(key, "")
print(value if isinstance(value, str) else json.dumps(value), end="")' "$@"
}

run() {
  local way=$1; shift
  # Where to: every call below ends in a URL on this host.
  local base=("$@")
  local url=${base[-1]}
  curl() { buf curl --protocol grpc --http2-prior-knowledge "${base[@]:0:${#base[@]}-1}" "$@"; }

  local services methods
  services=$(curl --list-services "$url")
  for wanted in "$service" grpc.health.v1.Health; do
    grep -qx "$wanted" <<<"$services" || fail "$way: $wanted is not among: $services"
  done
  methods=$(curl --list-methods "$url")
  for method in GetExecutor ListRoots ResolveRoots ListSkills ReadResource; do
    grep -qx "$service/$method" <<<"$methods" || fail "$way: no $method in: $methods"
  done
  for version in grpc-v1 grpc-v1alpha; do
    curl --reflect-protocol "$version" -d '{}' "$url/$service/GetExecutor" | at epoch | grep -q . ||
      fail "$way: GetExecutor by $version"
  done

  local listed package root
  listed=$(curl -d "@$selected" "$url/$service/ListSkills")
  package=$(at skills 0 package <<<"$listed")
  [[ $package == skill://* ]] || fail "$way: ListSkills gave no skill: ${listed:0:400}"
  root=$(python3 -c '
import json, sys
roots = json.load(sys.stdin)["selectedCapabilityRoots"]
print(json.dumps(next(root for root in roots if root["id"] == sys.argv[1])))
' "$(at skills 0 authority id <<<"$listed")" <"$selected")

  local pages=0 cursor="" text="" whole page
  while :; do
    page=$(curl -d "{\"root\": $root, \"package\": \"$package\", \"cursor\": \"$cursor\", \"maxBytes\": \"512\"}" \
      "$url/$service/ReadResource")
    # The dot keeps the newlines at the end of a page from being dropped.
    text+=$(at contents <<<"$page"; echo .)
    text=${text%.}
    cursor=$(at nextCursor <<<"$page")
    pages=$((pages + 1))
    [[ -n $cursor ]] || break
  done
  whole=$(curl -d "{\"root\": $root, \"package\": \"$package\", \"maxBytes\": \"1048576\"}" \
    "$url/$service/ReadResource" | at contents; echo .)
  [[ $text == "${whole%.}" && -n $text ]] || fail "$way: pages joined are not the file"
  ((pages > 1)) || fail "$way: $package came in one page"

  # 24 is buf's exit code for INVALID_ARGUMENT: eight times gRPC's.
  local code=0
  curl -d "{\"root\": $root, \"package\": \"skill://x/../y\"}" "$url/$service/ReadResource" \
    >/dev/null 2>&1 || code=$?
  ((code == 24)) || fail "$way: a bad handle gave $code"
  echo "buf curl over $way: $package in $pages pages"
}

run TCP "http://$address"
run 'a Unix socket' --unix-socket "$socket" http://localhost
