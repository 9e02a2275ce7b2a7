#!/usr/bin/env bash
# Calls a running caproot with `buf curl`, which learns the API from server reflection only. Lists
# and describes the service, sends a selectedCapabilityRoots JSON to ListSkills unchanged, and reads
# one skill in pages. Runs over TCP and over the Unix socket.
#
#   buf_curl.sh HOST:PORT SOCKET SELECTED.json
#
# Needs `buf` and python3 in PATH.
set -euo pipefail
(($# == 3)) || { sed -n '2,9p' "$0" >&2; exit 2; }
address=$1 socket=$2 selected=$3
service=caproot.v1.CapabilityService

fail() { echo "buf_curl: $*" >&2; exit 1; }

# Prints the value at a path of keys and indexes in the JSON on stdin, or nothing if it is missing.
json_value() {
  python3 -c '
import json, sys
value = json.load(sys.stdin)
for key in sys.argv[1:]:
    value = value[int(key)] if isinstance(value, list) else value.get(key, "")
print(value if isinstance(value, str) else json.dumps(value), end="")' "$@"
}

run() {
  local transport=$1; shift
  # The last argument is the URL of the host.
  local base=("$@")
  local url=${base[-1]}
  curl() { buf curl --protocol grpc --http2-prior-knowledge "${base[@]:0:${#base[@]}-1}" "$@"; }

  local services methods
  services=$(curl --list-services "$url")
  for wanted in "$service" grpc.health.v1.Health; do
    grep -qx "$wanted" <<<"$services" || fail "$transport: $wanted is not among: $services"
  done
  methods=$(curl --list-methods "$url")
  for method in GetExecutor ListRoots ResolveRoots ListSkills ReadResource; do
    grep -qx "$service/$method" <<<"$methods" || fail "$transport: no $method in: $methods"
  done
  for version in grpc-v1 grpc-v1alpha; do
    curl --reflect-protocol "$version" -d '{}' "$url/$service/GetExecutor" | json_value epoch | grep -q . ||
      fail "$transport: GetExecutor fails with $version"
  done

  local listed package root
  listed=$(curl -d "@$selected" "$url/$service/ListSkills")
  package=$(json_value skills 0 package <<<"$listed")
  [[ $package == skill://* ]] || fail "$transport: ListSkills gave no skill: ${listed:0:400}"
  root=$(python3 -c '
import json, sys
roots = json.load(sys.stdin)["selectedCapabilityRoots"]
print(json.dumps(next(root for root in roots if root["id"] == sys.argv[1])))
' "$(json_value skills 0 authority id <<<"$listed")" <"$selected")

  local pages=0 cursor="" text="" whole page
  while :; do
    page=$(curl -d "{\"root\": $root, \"package\": \"$package\", \"cursor\": \"$cursor\", \"maxBytes\": \"512\"}" \
      "$url/$service/ReadResource")
    # The dot protects the newlines at the end of a page.
    text+=$(json_value contents <<<"$page"; echo .)
    text=${text%.}
    cursor=$(json_value nextCursor <<<"$page")
    pages=$((pages + 1))
    [[ -n $cursor ]] || break
  done
  whole=$(curl -d "{\"root\": $root, \"package\": \"$package\", \"maxBytes\": \"1048576\"}" \
    "$url/$service/ReadResource" | json_value contents; echo .)
  [[ $text == "${whole%.}" && -n $text ]] || fail "$transport: the joined pages differ from the file"
  ((pages > 1)) || fail "$transport: $package came in one page"

  # The exit code of buf is eight times the gRPC code: 24 is INVALID_ARGUMENT.
  local code=0
  curl -d "{\"root\": $root, \"package\": \"skill://x/../y\"}" "$url/$service/ReadResource" \
    >/dev/null 2>&1 || code=$?
  ((code == 24)) || fail "$transport: a bad handle gives exit code $code"
  echo "buf curl over $transport: $package in $pages pages"
}

run TCP "http://$address"
run 'a Unix socket' --unix-socket "$socket" http://localhost
