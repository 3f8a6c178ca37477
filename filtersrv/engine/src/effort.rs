//! What a module costs the compiler, reckoned before it is given to it. Compiling cannot be interrupted, and some bytes of
//! a module stand for thousands of instructions: a call that passes on hundreds of values, locals that every loop around
//! their use has to carry. Without this limit a module of 20 KB takes minutes and gigabytes.

use wasmparser::{BlockType, CompositeInnerType, FunctionBody, Operator, Parser, Payload, TypeRef};

use crate::engine::EngineConfig;
use crate::module::{CompileError, invalid, within};

/// Numbers of parameters and results.
type Arity = (u64, u64);

/// Checks a valid module: its effort may be a unit a byte of the largest module, that of one function two units a byte of
/// the largest function. An instruction is a unit, and so is each value that it passes on, each loop around the use of a
/// local.
pub(crate) fn check(module: &[u8], config: &EngineConfig) -> Result<(), CompileError> {
    let (mut code, mut next, mut sum) = (Code::default(), 0, 0);
    let for_one = 2 * config.max_function_size as u64;
    let for_all = config.max_module_size as u64;
    for payload in Parser::new(0).parse_all(module) {
        match payload.map_err(|error| invalid(&error))? {
            Payload::TypeSection(section) => {
                for group in section {
                    for kind in group.map_err(|error| invalid(&error))?.into_types() {
                        code.types.push(match kind.composite_type.inner {
                            CompositeInnerType::Func(function) => (
                                function.params().len() as u64,
                                function.results().len() as u64,
                            ),
                            _ => (0, 0),
                        });
                    }
                }
            }
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    if let TypeRef::Func(kind) = import.map_err(|error| invalid(&error))?.ty {
                        code.functions.push(kind);
                    }
                }
            }
            Payload::FunctionSection(section) => {
                next = code.functions.len();
                for kind in section {
                    code.functions.push(kind.map_err(|error| invalid(&error))?);
                }
            }
            Payload::CodeSectionEntry(body) => {
                let effort = code
                    .effort(next, &body, for_one)
                    .map_err(|error| invalid(&error))?;
                (next, sum) = (next + 1, sum + effort);
                within("effort to compile one function", effort, for_one)?;
                within("effort to compile the module", sum, for_all)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// What is known of the module so far.
#[derive(Debug, Default)]
struct Code {
    types: Vec<Arity>,
    functions: Vec<u32>,
}

/// What a branch to a label carries, and whether it begins a loop.
struct Label {
    values: u64,
    is_loop: bool,
}

impl Code {
    fn of_type(&self, kind: u32) -> Arity {
        self.types.get(kind as usize).copied().unwrap_or_default()
    }

    fn of_function(&self, index: usize) -> Arity {
        let kind = self.functions.get(index).copied();
        kind.map(|kind| self.of_type(kind)).unwrap_or_default()
    }

    fn of_block(&self, kind: BlockType) -> Arity {
        match kind {
            BlockType::Empty => (0, 0),
            BlockType::Type(_) => (0, 1),
            BlockType::FuncType(kind) => self.of_type(kind),
        }
    }

    /// Effort for a function; not counted further once it is past `limit`.
    fn effort(
        &self,
        index: usize,
        body: &FunctionBody<'_>,
        limit: u64,
    ) -> Result<u64, wasmparser::BinaryReaderError> {
        let (parameters, results) = self.of_function(index);
        let mut locals = parameters;
        for local in body.get_locals_reader()? {
            locals += u64::from(local?.0);
        }
        let mut labels = vec![Label {
            values: results,
            is_loop: false,
        }];
        let (mut effort, mut loops, mut blocks, mut uses) = (locals, 0, 1, 0);
        for operator in body.get_operators_reader()? {
            let carried = |depth: u32| {
                let place = labels.len().checked_sub(depth as usize + 1);
                place
                    .and_then(|place| labels.get(place))
                    .map_or(0, |label| label.values)
            };
            effort += 1 + match operator? {
                Operator::LocalGet { .. }
                | Operator::LocalSet { .. }
                | Operator::LocalTee { .. } => {
                    uses += 1;
                    loops
                }
                Operator::Call { function_index } => {
                    passed(self.of_function(function_index as usize))
                }
                Operator::CallIndirect { type_index, .. } => passed(self.of_type(type_index)),
                Operator::Block { blockty } | Operator::If { blockty } => {
                    blocks += 1;
                    let arity = self.of_block(blockty);
                    labels.push(Label {
                        values: arity.1,
                        is_loop: false,
                    });
                    arity.0 + arity.1
                }
                Operator::Loop { blockty } => {
                    (blocks, loops) = (blocks + 1, loops + 1);
                    let arity = self.of_block(blockty);
                    labels.push(Label {
                        values: arity.0,
                        is_loop: true,
                    });
                    arity.0 + arity.1
                }
                Operator::End => {
                    if labels.pop().is_some_and(|label| label.is_loop) {
                        loops -= 1;
                    }
                    0
                }
                Operator::Else => {
                    blocks += 1;
                    0
                }
                Operator::Br { relative_depth } | Operator::BrIf { relative_depth } => {
                    blocks += 1;
                    carried(relative_depth)
                }
                Operator::BrTable { targets } => {
                    blocks += 1;
                    let each = 1 + carried(targets.default());
                    u64::from(targets.len()) * each
                }
                Operator::Return => results,
                _ => 0,
            };
            if effort > limit {
                break;
            }
        }
        // Where ways join, each local that is used may need a value of its own.
        Ok(effort + locals.min(uses) * blocks / 16)
    }
}

/// A call's values have places of their own.
fn passed((parameters, results): Arity) -> u64 {
    2 * (parameters + results)
}
