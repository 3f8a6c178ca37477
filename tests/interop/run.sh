#!/usr/bin/env bash
# Runs the interoperability suites on stock clients against a cluster that is up: run.sh [NAMESRV [SUITE...]]; see README.md.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
namesrv=${1:-127.0.0.1:9876}
shift || true
suites=("$@")
[ ${#suites[@]} -gt 0 ] || suites=(basic transaction sql request-reply query trace mqadmin)
clients=${CLIENTS:-java4 java4-rocketmq java5 java5-rocketmq go}
read -ra options <<<"${OPTIONS:-}"
java4=4.9.8 java5=5.5.0

# A tool that is missing is a reason to skip at home and a failure in CI.
missing() {
  echo "skipped: $1 not found, so no $2 clients"
  [ "${CI:-}" != true ] || { echo "FAILED: $1 is needed in CI"; exit 1; }
}
have_java=1 have_go=1
[[ $clients != *java* ]] || { command -v java >/dev/null && command -v mvn >/dev/null; } || { missing "java or mvn" Java; have_java=0; }
[[ $clients != *go* ]] || command -v go >/dev/null || { missing go Go; have_go=0; }

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0 failed=0 built=

# build CLIENT: once a client version; offline first, which is quick when everything is there.
build() {
  [[ $built != *" $1 "* ]] || return 0
  built="$built $1 "
  case $1 in
    go) (cd "$here/go" && go build -o target/interop .) ;;
    ours) (cd "$here/../.." && cargo build -q -p minimq-client --example interop) ;;
    *) (cd "$here/java" && { mvn -q -B -o -Drocketmq.version="$1" compile >/dev/null 2>&1 || mvn -q -B -Drocketmq.version="$1" compile; }) ;;
  esac
}

# run NAME COMMAND...: shows a program's lines and adds up its last one.
run() {
  echo "== $1: ${chosen[*]}"
  shift
  (cd "$scratch" && timeout 900 "$@" "$namesrv" "${chosen[@]}" ${options[@]+"${options[@]}"} < /dev/fd/3) | tee "$scratch/lines"
  local last
  last=$(tail -n 1 "$scratch/lines")
  if [[ $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
    passed=$((passed + BASH_REMATCH[1])) failed=$((failed + BASH_REMATCH[2]))
  else
    echo "FAILED: the program ended without a result"
    failed=$((failed + 1))
  fi
}
exec 3<&0

# choose SUITE...: those of the wanted suites that the next program has.
choose() {
  chosen=()
  for suite in "${suites[@]}"; do [[ " $* " != *" $suite "* ]] || chosen+=("$suite"); done
  [ ${#chosen[@]} -gt 0 ]
}

pair="pair-send pair-receive"
both="basic restart transaction sql request-reply query trace acl tls speed $pair"
for client in $clients; do
  jvm=(-Duser.home="$scratch" -Drocketmq.client.logRoot="$scratch/logs")
  [ "$client" = "${client%-rocketmq}" ] || jvm+=(-Drocketmq.serialize.type=ROCKETMQ)
  case $client in
    java4) version=$java4 suites_of="$both mqadmin filter" ;;
    java4-rocketmq) version=$java4 suites_of="$both mqadmin filter" jvm+=(-Drocketmq.message.compressType=LZ4) ;;
    java5*) version=$java5 suites_of=$both jvm+=(-Drocketmq.message.compressType=ZSTD) ;;
    go) version=go suites_of="basic transaction sql request-reply trace acl tls $pair" ;;
    ours) version=ours suites_of=$pair ;;
    *) echo "no such client: $client"; exit 2 ;;
  esac
  case $version in ours) ready=1 ;; go) ready=$have_go ;; *) ready=$have_java ;; esac
  [ "$ready" = 1 ] || continue
  # shellcheck disable=SC2086
  choose $suites_of || continue
  build $version || { echo "FAILED: build for $client"; failed=$((failed + 1)); continue; }
  if [ $version = go ]; then
    run "$client" "$here/go/target/interop"
  elif [ $version = ours ]; then
    run "$client" "$here/../../target/debug/examples/interop"
  else
    run "$client" java "${jvm[@]}" -Xmx512m -cp "$here/java/target/$version/classes:$here/java/target/$version/lib/*" minimq.interop.Interop
  fi
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
