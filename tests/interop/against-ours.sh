#!/usr/bin/env bash
# Runs the interoperability suites against our own binaries: a name server and a broker on free ports, in a
# temporary folder. against-ours.sh [SUITE...]; the binaries must be built (cargo build --bins).
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=${BIN:-target/debug}
suites=("$@")
[ ${#suites[@]} -gt 0 ] || suites=(basic restart)

dir=$(mktemp -d)
pids=()
finish() {
  for pid in "${pids[@]}" $(cat "$dir"/*.pid 2>/dev/null); do kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$dir"
}
trap finish EXIT

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

wait_for() { # PORT
  for _ in $(seq 200); do
    (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return 0
    sleep 0.1
  done
  echo "nothing listens on port $1"; cat "$dir"/*.log; return 1
}

namesrv=$(free_port)
"$bin/mqnamesrv" --listen "127.0.0.1:$namesrv" --set "kvConfigPath=$dir/kvConfig.json" \
  --set "configStorePath=$dir/namesrv.properties" >"$dir/namesrv.log" 2>&1 &
pids+=($!)
wait_for "$namesrv"

broker=$(free_port)
cat >"$dir/start-broker.sh" <<SCRIPT
#!/usr/bin/env bash
# Stops the broker if it runs, starts it on the same store, returns when it serves.
if [ -f $dir/broker.pid ]; then
  kill \$(cat $dir/broker.pid) 2>/dev/null
  while kill -0 \$(cat $dir/broker.pid) 2>/dev/null; do sleep 0.05; done
fi
$PWD/$bin/mqbroker -n 127.0.0.1:$namesrv --set bindAddress=127.0.0.1 --set brokerIP1=127.0.0.1 --set brokerName=broker-a \
  --set listenPort=$broker --set storePathRootDir=$dir/store --set mappedFileSizeCommitLog=67108864 \
  --set traceTopicEnable=true --set transactionTimeOut=1000 --set transactionCheckInterval=1000 \
  --set "messageDelayLevel=1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s" >>$dir/broker.log 2>&1 </dev/null &
echo \$! >$dir/broker.pid
until (exec 3<>/dev/tcp/127.0.0.1/$broker) 2>/dev/null; do sleep 0.05; done
SCRIPT
chmod +x "$dir/start-broker.sh"
"$dir/start-broker.sh"
wait_for "$broker"

OPTIONS="restart=$dir/start-broker.sh" bash tests/interop/run.sh "127.0.0.1:$namesrv" "${suites[@]}" || {
  echo "the broker's last lines:"; grep -v INFO "$dir/broker.log" | tail -n 30; exit 1
}
