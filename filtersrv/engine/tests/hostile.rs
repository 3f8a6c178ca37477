//! Modules that mean harm in ways that pass one check or another: what is refused, what is contained, and that the
//! engine goes on.

use bytes::Bytes;
use minimq_filter_engine::{Engine, EngineConfig, Failure, FilterContext};
use minimq_protocol::message::{MessageView, RecordFields};
use minimq_protocol::properties::PropertiesBuf;

const MEMORY: &str = "(memory (export \"memory\") 1)";
const MARKER: &str = "(func (export \"minimq_filter_abi_1\"))";
const FILTER: &str = "(func (export \"filter\") (result i32) i32.const 1)";

/// A module with these parts besides memory and marker.
fn with(parts: &str) -> String {
    format!("(module {MEMORY} {MARKER} {parts})")
}

/// A module whose filter is this.
fn filter(code: &str) -> String {
    with(&format!("(func (export \"filter\") (result i32) {code})"))
}

fn message() -> MessageView<Bytes> {
    let mut properties = PropertiesBuf::new();
    properties.push("name", "value");
    let host = "127.0.0.1:1".parse().unwrap();
    let record = RecordFields {
        topic: "T",
        queue_id: 0,
        flag: 0,
        queue_offset: 0,
        physical_offset: 0,
        sys_flag: 0,
        born_timestamp: 1,
        born_host: host,
        store_timestamp: 2,
        store_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body_crc: minimq_protocol::crc::body_crc(b"body"),
        body: b"body",
        properties: properties.as_str().as_bytes(),
        appended_properties: &[],
    };
    MessageView::parse(record.encode().unwrap()).unwrap()
}

fn engine() -> Engine {
    Engine::new(EngineConfig::default()).unwrap()
}

/// What the filter says of one message, when it is taken at all.
fn verdict(module: &str) -> Result<bool, Failure> {
    let filter = engine().compile(module.as_bytes()).unwrap();
    let mut instance = filter.instantiate(FilterContext::default()).unwrap();
    assert!(instance.memory() <= 16 << 20);
    let verdict = instance.batch().run(&message());
    assert!(instance.memory() <= 16 << 20);
    verdict
}

fn traps(module: &str, with: &str) {
    match verdict(module) {
        Err(Failure::Trapped(text)) => assert!(text.contains(with), "{text}"),
        other => panic!("{other:?} of {module}"),
    }
}

#[test]
fn what_cannot_start_is_refused_with_its_reason() {
    for (parts, reason) in [
        (
            "(func $s (call $s)) (start $s)",
            "does not start: the filter trapped: wasm trap: call stack exhausted",
        ),
        (
            "(func (export \"init\") (result i32) unreachable)",
            "does not start: the filter trapped: wasm trap: wasm `unreachable`",
        ),
        (
            "(func (export \"init\") (result i32) (loop (drop (memory.grow (i32.const 1))) (br 0)) i32.const 0)",
            "does not start: the filter took longer than 100 ms",
        ),
        (
            "(data (i32.const 65535) \"two\")",
            "does not start: the filter trapped: wasm trap: out of bounds memory access",
        ),
        (
            "(data (i32.const -1) \"far\")",
            "does not start: the filter trapped: wasm trap: out of bounds memory access",
        ),
        (
            "(table 1 funcref) (func $f) (elem (i32.const 1) $f)",
            "does not start: the filter trapped: wasm trap: ",
        ),
        (
            "(table 4294967295 funcref)",
            "elements of the table: 4294967295, at most 10000",
        ),
    ] {
        let refused = engine()
            .compile(with(&format!("{FILTER} {parts}")).as_bytes())
            .unwrap_err()
            .to_string();
        assert!(refused.contains(reason), "{parts}: {refused}");
    }
}

#[test]
fn what_is_of_the_wrong_kind_is_refused() {
    for (module, reason) in [
        (
            with("(func (export \"filter\") (param i32) (result i32) i32.const 1)"),
            "must export \"filter\" as a function () -> i32",
        ),
        (
            with("(func (export \"filter\") (result i64) i64.const 1)"),
            "must export \"filter\" as a function () -> i32",
        ),
        (
            with("(func (export \"filter\") (result i32 i32) i32.const 1 i32.const 1)"),
            "must export \"filter\" as a function () -> i32",
        ),
        (
            with("(global (export \"filter\") i32 (i32.const 1))"),
            "must export \"filter\" as a function () -> i32",
        ),
        (
            with(&format!("{FILTER} (func (export \"init\"))")),
            "must export \"init\"",
        ),
        (
            format!(
                "(module (import \"env\" \"memory\" (memory 1)) (export \"memory\" (memory 0)) {MARKER} {FILTER})"
            ),
            "import env.memory is not allowed",
        ),
        (
            format!(
                "(module (import \"minimq\" \"property\" (memory 1)) (export \"memory\" (memory 0)) {MARKER} {FILTER})"
            ),
            "import minimq.property must be a function",
        ),
        (
            format!(
                "(module (import \"minimq\" \"body\" (func (param i64 i32 i32) (result i32))) {MEMORY} {MARKER} {FILTER})"
            ),
            "import minimq.body must be a function (i32, i32, i32) -> i32",
        ),
        (
            format!("(module (global (export \"memory\") i32 (i32.const 1)) {MARKER} {FILTER})"),
            "must export its memory",
        ),
    ] {
        let refused = engine().compile(module.as_bytes()).unwrap_err().to_string();
        assert!(refused.contains(reason), "{module}: {refused}");
    }
}

#[test]
fn memory_and_table_grow_to_their_limits_and_no_further() {
    // It may say that it wants more than it will ever get.
    let greedy = format!(
        "(module (memory (export \"memory\") 1 65536) {MARKER}
           (func (export \"filter\") (result i32)
             (loop (br_if 0 (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
             (i32.sub (i32.const 0) (memory.size))))"
    );
    assert_eq!(verdict(&greedy), Err(Failure::Guest(-256)));
    let grow = |by: &str| filter(&format!("(i32.sub (memory.grow {by}) (i32.const 1))"));
    for by in ["(i32.const -1)", "(i32.const 256)", "(i32.const 65536)"] {
        assert_eq!(verdict(&grow(by)), Err(Failure::Guest(-2)), "{by}");
    }
    let table = with(
        "(table $t 1 funcref) (func (export \"filter\") (result i32)
           (loop (br_if 0 (i32.ne (table.grow $t (ref.null func) (i32.const 1)) (i32.const -1))))
           (i32.sub (i32.const 0) (table.size $t)))",
    );
    assert_eq!(verdict(&table), Err(Failure::Guest(-10_000)));
    // Grown while it starts, it begins large.
    let early = with(
        "(func (export \"init\") (result i32)
           (loop (br_if 0 (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))) i32.const 0)
         (func (export \"filter\") (result i32) (i32.sub (i32.const 0) (memory.size)))",
    );
    assert_eq!(verdict(&early), Err(Failure::Guest(-256)));
}

#[test]
fn wild_jumps_and_pointers_trap() {
    let table = "(type $v (func)) (type $i (func (result i32))) (table 2 funcref) (func $f) (elem (i32.const 0) $f)";
    let indirect = |at: i32, kind: &str| {
        with(&format!(
            "{table} (func (export \"filter\") (result i32) (call_indirect (type {kind}) (i32.const {at})) {})",
            if kind == "$v" { "i32.const 1" } else { "" }
        ))
    };
    traps(&indirect(-1, "$v"), "out of bounds");
    traps(&indirect(1, "$v"), "uninitialized element");
    traps(&indirect(0, "$i"), "indirect call type mismatch");
    assert_eq!(verdict(&indirect(0, "$v")), Ok(true));
    for code in [
        "(i32.load8_u offset=4294967295 (i32.const -1))",
        "(i32.load (i32.const 65533))",
        "(memory.copy (i32.const 0) (i32.const 1) (i32.const 65536)) i32.const 1",
        "(memory.fill (i32.const 65536) (i32.const 0) (i32.const 1)) i32.const 1",
        "(v128.store (i32.const 65521) (v128.const i64x2 1 1)) i32.const 1",
    ] {
        traps(&filter(code), "out of bounds memory access");
    }
}

#[test]
fn deep_calls_by_many_functions_end_in_a_trap_as_recursion_does() {
    // Each with a frame of its own; the last of them has the first again.
    let functions: String = (0..2000)
        .map(|n| {
            format!(
                "(func $f{n} (param i64 i64 i64 i64) (result i64)
                   (i64.add (call $f{} (local.get 1) (local.get 2) (local.get 3) (local.get 0))
                            (i64.mul (local.get 0) (local.get 3))))",
                (n + 1) % 2000
            )
        })
        .collect();
    let module = with(&format!(
        "{functions} (func (export \"filter\") (result i32)
           (i32.wrap_i64 (call $f0 (i64.const 1) (i64.const 2) (i64.const 3) (i64.const 4))))"
    ));
    traps(&module, "call stack exhausted");
}

#[test]
fn names_as_long_as_the_memory_and_endless_questions_are_answered() {
    let import = "(import \"minimq\" \"property\" (func $p (param i32 i32 i32 i32) (result i32)))
        (import \"minimq\" \"log\" (func $log (param i32 i32 i32)))";
    let asks = |code: &str| {
        format!(
            "(module {import} {MEMORY} {MARKER} (func (export \"filter\") (result i32) {code}))"
        )
    };
    let whole = asks("(call $p (i32.const 0) (i32.const 65536) (i32.const 0) (i32.const 65536))");
    assert_eq!(verdict(&whole), Err(Failure::Guest(-1)), "absent");
    let timed_out = Err(Failure::TimedOut(std::time::Duration::from_millis(10)));
    let forever = asks(
        "(loop (drop (call $p (i32.const 0) (i32.const 65536) (i32.const 0) (i32.const 8))) (br 0)) i32.const 1",
    );
    assert_eq!(verdict(&forever), timed_out);
    let spam =
        asks("(loop (call $log (i32.const 0) (i32.const 0) (i32.const 65536)) (br 0)) i32.const 1");
    assert_eq!(verdict(&spam), timed_out);
}

#[test]
fn vectors_are_computed() {
    let code =
        "(i32x4.extract_lane 2 (i32x4.add (v128.const i32x4 1 2 3 4) (v128.const i32x4 1 1 -2 1)))";
    assert_eq!(verdict(&filter(code)), Ok(true));
}

/// An image of each module's data would be a file descriptor of the process.
#[cfg(target_os = "linux")]
#[test]
fn modules_hold_no_files_open() {
    let engine = engine();
    let filters: Vec<_> = (0..20)
        .map(|n| {
            let parts = format!("(data (i32.const {n}) \"data\") {FILTER}");
            let filter = engine.compile(with(&parts).as_bytes()).unwrap();
            let instance = filter.instantiate(FilterContext::default()).unwrap();
            (filter, instance)
        })
        .collect();
    let images = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|file| std::fs::read_link(file.unwrap().path()).ok())
        .filter(|target| target.to_string_lossy().contains("wasm-memory-image"))
        .count();
    assert_eq!(images, 0, "of {} modules", filters.len());
}

/// Small modules that would take the compiler minutes or gigabytes.
#[test]
fn modules_that_mean_much_effort_for_the_compiler_are_refused_before() {
    let values = |n: usize| "i32 ".repeat(n);
    let locals = |n: usize, action: &str| -> String {
        (0..n)
            .map(|local| action.replace('N', &local.to_string()))
            .collect()
    };
    let calls = |n: usize, times: usize, functions: usize| {
        format!(
            "(type $one (func (result {0}))) (type $many (func (param {0}) (result {0})))
             (func $a (type $one) unreachable) (func $b (type $many) unreachable) ",
            values(n)
        ) + &format!("(func (type $one) call $a {})", "call $b ".repeat(times)).repeat(functions)
    };
    let loops = format!(
        "(func (local {}) {} {} {} {})",
        values(1000),
        "loop ".repeat(1000),
        locals(1000, "local.get N drop "),
        locals(1000, "i32.const 1 local.set N "),
        "br 0 end ".repeat(1000)
    );
    let joins = format!(
        "(func (local {}) {} {})",
        values(5000),
        "i32.const 1 if nop end ".repeat(20_000),
        locals(5000, "local.get N drop ")
    );
    let branches = format!(
        "(type $many (func (result {}))) (func (local i32) (block (type $many) {} local.get 0 br_table {}) {})",
        values(16),
        "i32.const 1 ".repeat(16),
        "0 ".repeat(40_000),
        "drop ".repeat(16)
    );
    let many = "(func (local i32) loop loop loop loop local.get 0 drop end end end end)".to_owned();
    for (parts, what) in [
        (calls(1000, 50_000, 1), "results of one function: 1000"),
        (
            format!("(func (param {}))", values(101)),
            "parameters of one function: 101, at most 100",
        ),
        (calls(16, 8_500, 1), "effort to compile one function"),
        (loops, "effort to compile one function"),
        (joins, "effort to compile one function"),
        (branches, "effort to compile one function"),
        (
            format!("(type $many (func (result {}))) {FILTER}", values(17)),
            "results of one function: 17, at most 16",
        ),
        (calls(16, 7_500, 9), "effort to compile the module"),
    ] {
        let refused = engine()
            .compile(with(&format!("{parts} {FILTER}")).as_bytes())
            .unwrap_err()
            .to_string();
        assert!(refused.contains(what), "{what}: {refused}");
    }
    let fine = with(&format!("{} {FILTER}", many.repeat(5000)));
    engine().compile(fine.as_bytes()).unwrap();
}
