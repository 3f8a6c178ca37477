;; Keeps messages whose property "price" is a number of at most 100.
(module
  (import "minimq" "property_f64"
    (func $property_f64 (param $name i32) (param $len i32) (param $out i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "price")
  (func (export "minimq_filter_abi_1"))
  (func (export "filter") (result i32)
    (if (call $property_f64 (i32.const 0) (i32.const 5) (i32.const 8))
      (then (return (i32.const 0))))
    (f64.le (f64.load (i32.const 8)) (f64.const 100))))
