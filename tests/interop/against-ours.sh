#!/usr/bin/env bash
# Runs the interoperability suites against our own binaries: clusters on free ports, in temporary folders.
# against-ours.sh [GROUP...], a group being main, one, acl, tls, filter or pairs (all of them); the binaries must be built (cargo build --bins).
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=$PWD/${BIN:-target/debug}
groups=("$@")
[ ${#groups[@]} -gt 0 ] || groups=(main one acl tls filter pairs)

root=$(mktemp -d)
stop_all() {
  # Filter servers first: one that outlives its broker looks for it at the same port, where another run may have one by then.
  for file in "$root"/*/filtersrv.pid "$root"/*/*.pid; do
    [ -f "$file" ] || continue
    local pid; pid=$(cat "$file")
    kill "$pid" 2>/dev/null || true
    for _ in $(seq 200); do kill -0 "$pid" 2>/dev/null || break; sleep 0.05; done
    rm -f "$file"
  done
}
trap 'stop_all; wait 2>/dev/null || true; rm -rf "$root" || true' EXIT

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

wait_for() { # PORT LOG
  for _ in $(seq 300); do
    (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return 0
    sleep 0.1
  done
  echo "nothing listens on port $1"; cat "$2"; return 1
}

# cluster NAME KEY=VALUE...: a name server and a broker with these keys; sets dir and namesrv. The script
# start-broker.sh in dir stops the broker if it runs and starts it on the same store.
cluster() {
  dir=$root/$1
  mkdir -p "$dir"
  shift
  namesrv=127.0.0.1:$(free_port)
  local broker; broker=$(free_port)
  "$bin/mqnamesrv" --listen "$namesrv" --set "kvConfigPath=$dir/kvConfig.json" \
    --set "configStorePath=$dir/namesrv.properties" >"$dir/namesrv.log" 2>&1 &
  echo $! >"$dir/namesrv.pid"
  wait_for "${namesrv#*:}" "$dir/namesrv.log"
  {
    echo "namesrvAddr=$namesrv"
    echo "listenPort=$broker"
    printf '%s\n' bindAddress=127.0.0.1 brokerIP1=127.0.0.1 brokerName=broker-a "storePathRootDir=$dir/store" \
      diskSpaceWarningLevelRatio=100 diskSpaceCleanForciblyRatio=100 \
      mappedFileSizeCommitLog=67108864 traceTopicEnable=true transactionTimeOut=1000 transactionCheckInterval=1000 \
      "messageDelayLevel=1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s" "$@"
  } >"$dir/broker.conf"
  cat >"$dir/start-broker.sh" <<SCRIPT
#!/usr/bin/env bash
if [ -f $dir/broker.pid ]; then
  kill \$(cat $dir/broker.pid) 2>/dev/null
  while kill -0 \$(cat $dir/broker.pid) 2>/dev/null; do sleep 0.05; done
fi
# It listens a moment before the name server knows it again; that it serves it says after both.
started=\$(grep -c 'boot success' $dir/broker.log 2>/dev/null)
$bin/mqbroker -c $dir/broker.conf >>$dir/broker.log 2>&1 </dev/null &
echo \$! >$dir/broker.pid
until [ "\$(grep -c 'boot success' $dir/broker.log)" -gt "\${started:-0}" ]; do
  kill -0 \$(cat $dir/broker.pid) 2>/dev/null || exit 1
  sleep 0.05
done
SCRIPT
  chmod +x "$dir/start-broker.sh"
  "$dir/start-broker.sh" || { cat "$dir/broker.log"; return 1; }
}

suites() { # SUITE...
  bash tests/interop/run.sh "$namesrv" "$@" || {
    echo "warnings and errors of the broker:"
    grep -vE ' (INFO|DEBUG) ' "$dir/broker.log" | tail -n 30
    exit 1
  }
}

for group in "${groups[@]}"; do
  case $group in
    main)
      cluster main
      OPTIONS="restart=$dir/start-broker.sh" suites ${SUITES:-basic restart transaction sql request-reply query trace mqadmin}
      ;;
    one)
      # The whole cluster in one process.
      dir=$root/one
      mkdir -p "$dir"
      "$bin/minimq" --memory --port-base "$(free_port)" --set transactionTimeOut=1000 --set transactionCheckInterval=1000 \
        --set "messageDelayLevel=1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s" >"$dir/ready" 2>"$dir/broker.log" &
      echo $! >"$dir/minimq.pid"
      for _ in $(seq 300); do grep -qs '^Stop it' "$dir/ready" && break; sleep 0.1; done
      namesrv=$(awk '/name server/ { print $3; exit }' "$dir/ready")
      CLIENTS="java4 go" suites basic transaction sql request-reply query trace
      CLIENTS=java4 OPTIONS="filter=$PWD/filtersrv/examples/sequence_id.wat class=org.example.SequenceId" suites filter
      ;;
    acl)
      mkdir -p "$root/acl"
      cp tests/interop/plain_acl.yml "$root/acl/plain_acl.yml"
      cluster acl aclEnable=true "aclFile=$root/acl/plain_acl.yml"
      suites acl
      ;;
    tls)
      for mode in permissive enforcing disabled; do
        cluster "tls-$mode" "tls.server.mode=$mode"
        CLIENTS="java4 go" OPTIONS="mode=$mode" suites tls
      done
      ;;
    filter)
      cluster filter
      "$bin/mqfiltersrv" --broker "127.0.0.1:$(sed -n 's/^listenPort=//p' "$dir/broker.conf")" --listen 127.0.0.1:0 >"$dir/filtersrv.log" 2>&1 &
      echo $! >"$dir/filtersrv.pid"
      # A stock consumer can only upload a string: the text form, and base64 of the binary one, whatever made that.
      modules=("$PWD/filtersrv/examples/sequence_id.wat")
      for module in $(filtersrv/examples/build.sh | grep sequence_id); do
        modules+=("$dir/$(basename "$module").base64")
        base64 -w 0 "$module" >"${modules[-1]}"
      done
      for module in "${modules[@]}"; do
        echo "-- $(basename "$module")"
        CLIENTS=java4 OPTIONS="filter=$module class=org.example.SequenceId" suites filter
      done
      ;;
    pairs)
      cluster pairs
      # Who sends and who receives: our client, the stock Java and the stock Go client, each with each.
      for from in ours java4 go; do
        CLIENTS=$from OPTIONS="topic=PairFrom-$from" suites pair-send
      done
      for from in ours java4 go; do
        for to in ours java4 go; do
          echo "-- from $from to $to"
          CLIENTS=$to OPTIONS="topic=PairFrom-$from" suites pair-receive
        done
      done
      ;;
    *) echo "no group $group: main, one, acl, tls, filter or pairs"; exit 1 ;;
  esac
  stop_all
done
