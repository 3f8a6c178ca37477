// Keeps every third message above ten, by the property "SequenceId"; one without it is dropped, one whose SequenceId is
// no number is an error.

// @ts-ignore: decorator
@external("minimq", "property_i64")
declare function property_i64(name: usize, nameLength: i32, out: usize): i32;

const ABSENT = -1;

// Made once, when the instance starts: the name in UTF-8, and room for the answer.
const NAME = String.UTF8.encode("SequenceId");
const OUT = new StaticArray<i64>(1);

// The mark of the ABI; never called.
export function minimq_filter_abi_1(): void {}

export function filter(): i32 {
  const code = property_i64(changetype<usize>(NAME), NAME.byteLength, changetype<usize>(OUT));
  if (code == ABSENT) return 0;
  if (code != 0) return code;
  const n = OUT[0];
  return n > 10 && n % 3 == 0 ? 1 : 0;
}
