#!/usr/bin/env bash
# Builds the example filters from source, prints the path of each module. A language whose compiler is missing here is
# left out, and a line on standard error says what it needs.
set -euo pipefail
cd "$(dirname "$0")"
mkdir -p "${CARGO_TARGET_DIR:-target}"
out=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)
built=0
left_out() { echo "left out: $*" >&2; }

# With the target wasm32-unknown-unknown (rustup target add wasm32-unknown-unknown) cargo does it alone; without it,
# Debian's newer rustc with the sources of std (packages rustc-web, cargo-web, rust-web-src, lld) builds std too.
target=wasm32-unknown-unknown
libraries() { "$1" --print target-libdir --target $target 2>/dev/null; }
rust() {
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
        left_out "Rust. rustup target add $target, or install rustc-web, cargo-web, rust-web-src and lld"
        return
    fi
    ls "$out/$target/release/"*.wasm
    built=$((built + 1))
}

c() {
    if ! command -v clang >/dev/null || ! command -v wasm-ld >/dev/null; then
        left_out "C. Install clang and lld"
        return
    fi
    clang --target=wasm32 -O2 -Wall -Wextra -nostdlib -Wl,--no-entry -o "$out/sequence_id_c.wasm" c/sequence_id.c
    echo "$out/sequence_id_c.wasm"
    built=$((built + 1))
}

assemblyscript() {
    if ! command -v npm >/dev/null; then
        left_out "AssemblyScript. Install nodejs (20 or newer) and npm"
        return
    fi
    # The compiler stays where the modules go; it is fetched once.
    mkdir -p "$out/assemblyscript"
    cp assemblyscript/package.json "$out/assemblyscript/"
    if ! cmp -s assemblyscript/package.json "$out/assemblyscript/installed" \
        && ! { npm install --prefix "$out/assemblyscript" --no-audit --no-fund --silent >&2 \
            && cp assemblyscript/package.json "$out/assemblyscript/installed"; }; then
        left_out "AssemblyScript. npm install of its compiler failed"
        return
    fi
    "$out/assemblyscript/node_modules/.bin/asc" assemblyscript/sequence_id.ts -O --runtime stub \
        -o "$out/sequence_id_assemblyscript.wasm" >&2
    echo "$out/sequence_id_assemblyscript.wasm"
    built=$((built + 1))
}

rust
c
assemblyscript
[ "$built" -gt 0 ]
