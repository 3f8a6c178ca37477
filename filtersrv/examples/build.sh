#!/usr/bin/env bash
# Builds the example filters from source, prints the path of each module.
# With the target wasm32-unknown-unknown (rustup target add wasm32-unknown-unknown) cargo does it alone; without it,
# Debian's newer rustc with the sources of std (packages rustc-web, cargo-web, rust-web-src, lld) builds std too.
set -euo pipefail
cd "$(dirname "$0")"
target=wasm32-unknown-unknown
libraries() { "$1" --print target-libdir --target $target 2>/dev/null; }

if [ -d "$(libraries "${RUSTC:-rustc}")" ]; then
    cargo build --quiet --release --target $target
elif [ -x /usr/bin/rustc ] && [ -d "$(libraries /usr/bin/rustc)" ]; then
    RUSTC=/usr/bin/rustc /usr/bin/cargo build --quiet --release --target $target
elif [ -x /usr/bin/rustc ] && [ -d /usr/lib/rustlib/src/rust/library ] && command -v wasm-ld >/dev/null; then
    CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=$(command -v wasm-ld)
    export CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER
    RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 /usr/bin/cargo build --quiet --release \
        -Zbuild-std=std,panic_abort --target $target
else
    echo "no Rust for $target here: rustup target add $target, or install rustc-web, cargo-web, rust-web-src and lld" >&2
    exit 1
fi
folder=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)
ls "$folder/$target/release/"*.wasm
