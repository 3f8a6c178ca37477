;; Keeps every third message above ten, by the property "SequenceId"; one without it is dropped,
;; one whose SequenceId is no number is an error.
(module
  (import "minimq" "property_i64"
    (func $property_i64 (param $name i32) (param $len i32) (param $out i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "SequenceId")
  (func (export "minimq_filter_abi_1"))
  (func (export "filter") (result i32)
    (local $code i32) (local $n i64)
    (local.set $code (call $property_i64 (i32.const 0) (i32.const 10) (i32.const 16)))
    (if (i32.eq (local.get $code) (i32.const -1)) (then (return (i32.const 0))))
    (if (local.get $code) (then (return (local.get $code))))
    (local.set $n (i64.load (i32.const 16)))
    (i32.and
      (i64.gt_s (local.get $n) (i64.const 10))
      (i64.eqz (i64.rem_s (local.get $n) (i64.const 3))))))
