//! From uploaded bytes to a module that may run: which of the three forms it is, what it must and must
//! not contain. Each refusal names the fault; nothing is compiled before these checks pass.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use std::borrow::Cow;
use wasmparser::{
    CompositeInnerType, ExternalKind, FuncType, Parser, Payload, TypeRef, ValType, Validator,
    WasmFeatures,
};

use crate::abi;
use crate::effort;
use crate::engine::EngineConfig;

/// Why a module is refused. The text is the remark that the uploader reads.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// Longer than the configured limit.
    #[error("the module has {size} bytes, at most {limit} are accepted")]
    TooLarge {
        /// Bytes uploaded.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// Neither binary, text nor base64.
    #[error(
        "not a WebAssembly module: expected the binary form, the text form \"(module …)\" or base64 of the binary form"
    )]
    NotAModule,
    /// The text form has a fault.
    #[error("the text form does not parse: {0}")]
    Text(String),
    /// The binary form has a fault.
    #[error("invalid module at byte {at}: {what}")]
    Invalid {
        /// What is wrong.
        what: String,
        /// Byte offset in the binary form.
        at: usize,
    },
    /// Needs a feature that is switched off.
    #[error("the module uses {feature}, which filters may not use")]
    Feature {
        /// The feature's name.
        feature: &'static str,
    },
    /// A component instead of a core module.
    #[error("this is a component; a filter is a core module (build for wasm32-unknown-unknown)")]
    Component,
    /// An import other than the host's functions.
    #[error(
        "import {module}.{name} is not allowed: a filter may import only functions of \"minimq\" (and env.abort)"
    )]
    ForbiddenImport {
        /// The import's module.
        module: String,
        /// The import's name.
        name: String,
    },
    /// A known import with other parameters.
    #[error("import {module}.{name} must be a function {expected}")]
    ImportType {
        /// The import's module.
        module: String,
        /// The import's name.
        name: String,
        /// Its form.
        expected: String,
    },
    /// An export is missing or of another type.
    #[error("the module must export {expected}")]
    MissingExport {
        /// What must be there.
        expected: &'static str,
    },
    /// Memory, table or function beyond a limit.
    #[error("{what}: {value}, at most {limit} is accepted")]
    Limit {
        /// What is limited, with its unit.
        what: &'static str,
        /// The module's value.
        value: u64,
        /// The limit.
        limit: u64,
    },
    /// The compiler refused it.
    #[error("the module does not compile: {0}")]
    Compiler(String),
    /// Start function or `init` failed when tried.
    #[error("the module does not start: {0}")]
    Start(String),
}

/// What a filter may use: what rustc, clang and asc emit.
fn accepted() -> WasmFeatures {
    WasmFeatures::MUTABLE_GLOBAL
        | WasmFeatures::SATURATING_FLOAT_TO_INT
        | WasmFeatures::SIGN_EXTENSION
        | WasmFeatures::REFERENCE_TYPES
        | WasmFeatures::MULTI_VALUE
        | WasmFeatures::BULK_MEMORY
        | WasmFeatures::SIMD
        | WasmFeatures::FLOATS
}

/// Features that are refused by name, each with what it builds upon.
fn refused() -> [(&'static str, WasmFeatures); 12] {
    let gc = WasmFeatures::FUNCTION_REFERENCES | WasmFeatures::GC | WasmFeatures::GC_TYPES;
    [
        ("threads (shared memory)", WasmFeatures::THREADS),
        ("64-bit memory (memory64)", WasmFeatures::MEMORY64),
        (
            "more than one memory (multi-memory)",
            WasmFeatures::MULTI_MEMORY,
        ),
        (
            "exceptions",
            WasmFeatures::EXCEPTIONS | WasmFeatures::LEGACY_EXCEPTIONS | WasmFeatures::GC_TYPES,
        ),
        ("tail calls", WasmFeatures::TAIL_CALL),
        ("relaxed SIMD", WasmFeatures::RELAXED_SIMD),
        (
            "extended constant expressions",
            WasmFeatures::EXTENDED_CONST,
        ),
        ("external references (externref)", WasmFeatures::GC_TYPES),
        (
            "typed function references",
            WasmFeatures::FUNCTION_REFERENCES,
        ),
        ("garbage collection", gc),
        ("memory control", WasmFeatures::MEMORY_CONTROL),
        ("wide arithmetic", WasmFeatures::WIDE_ARITHMETIC),
    ]
}

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

const BINARY_START: &[u8] = b"\0asm";

/// The binary form of an upload.
pub(crate) fn binary<'u>(
    upload: &'u [u8],
    config: &EngineConfig,
) -> Result<Cow<'u, [u8]>, CompileError> {
    let too_large = |size| CompileError::TooLarge {
        size,
        limit: config.max_module_size,
    };
    if upload.starts_with(BINARY_START) {
        return if upload.len() > config.max_module_size {
            Err(too_large(upload.len()))
        } else {
            Ok(Cow::Borrowed(upload))
        };
    }
    // Text and base64 may be longer than the module they stand for.
    if upload.len() > config.max_module_size.saturating_mul(2) {
        return Err(too_large(upload.len()));
    }
    let text = std::str::from_utf8(upload).map_err(|_| CompileError::NotAModule)?;
    let trimmed = text.trim_start_matches('\u{feff}').trim();
    let binary = if trimmed.starts_with('(') || trimmed.starts_with(";;") {
        wat::parse_str(trimmed).map_err(|error| CompileError::Text(error.to_string()))?
    } else {
        let compact: Vec<u8> = trimmed
            .bytes()
            .filter(|b| !b.is_ascii_whitespace())
            .collect();
        let decoded = BASE64
            .decode(compact)
            .map_err(|_| CompileError::NotAModule)?;
        if !decoded.starts_with(BINARY_START) {
            return Err(CompileError::NotAModule);
        }
        decoded
    };
    if binary.len() > config.max_module_size {
        return Err(too_large(binary.len()));
    }
    Ok(Cow::Owned(binary))
}

pub(crate) fn invalid(error: &wasmparser::BinaryReaderError) -> CompileError {
    CompileError::Invalid {
        what: error.message().to_owned(),
        at: error.offset(),
    }
}

/// Checks a binary module in full.
pub(crate) fn validate(module: &[u8], config: &EngineConfig) -> Result<(), CompileError> {
    if Parser::is_component(module) {
        return Err(CompileError::Component);
    }
    let counted = count(module, config);
    if let Err(limit @ CompileError::Limit { .. }) = counted {
        return Err(limit);
    }
    if let Err(error) = Validator::new_with_features(accepted()).validate_all(module) {
        return Err(needed_feature(module).unwrap_or_else(|| invalid(&error)));
    }
    counted?;
    effort::check(module, config)?;
    check_interface(module)
}

/// The first refused feature with which the module would be valid.
fn needed_feature(module: &[u8]) -> Option<CompileError> {
    refused()
        .into_iter()
        .find(|(_, extra)| {
            Validator::new_with_features(accepted() | *extra)
                .validate_all(module)
                .is_ok()
        })
        .map(|(feature, _)| CompileError::Feature { feature })
}

pub(crate) fn within(what: &'static str, value: u64, limit: u64) -> Result<(), CompileError> {
    if value > limit {
        return Err(CompileError::Limit { what, value, limit });
    }
    Ok(())
}

/// The limits on what the compiler is given: compiling cannot be interrupted.
fn count(module: &[u8], config: &EngineConfig) -> Result<(), CompileError> {
    for payload in Parser::new(0).parse_all(module) {
        match payload.map_err(|error| invalid(&error))? {
            Payload::CodeSectionStart { count, .. } => {
                within("functions", count.into(), config.max_functions as u64)?;
            }
            Payload::CodeSectionEntry(body) => within(
                "bytes of one function",
                body.range().len() as u64,
                config.max_function_size as u64,
            )?,
            Payload::MemorySection(memories) => {
                for memory in memories {
                    let memory = memory.map_err(|error| invalid(&error))?;
                    within(
                        "bytes of memory at start",
                        memory.initial.saturating_mul(65_536),
                        config.max_memory as u64,
                    )?;
                }
            }
            Payload::TableSection(tables) => {
                within("tables", tables.count().into(), 1)?;
                for table in tables {
                    let table = table.map_err(|error| invalid(&error))?;
                    within(
                        "elements of the table",
                        table.ty.initial,
                        config.max_table_elements as u64,
                    )?;
                }
            }
            Payload::GlobalSection(globals) => within("globals", globals.count().into(), 10_000)?,
            Payload::TypeSection(types) => {
                within("types", types.count().into(), 10_000)?;
                // Checking alone takes long when each of a hundred thousand calls passes on a thousand values.
                for group in types {
                    for kind in group.map_err(|error| invalid(&error))?.into_types() {
                        if let CompositeInnerType::Func(function) = kind.composite_type.inner {
                            let (parameters, results) = (function.params(), function.results());
                            within("parameters of one function", parameters.len() as u64, 100)?;
                            within("results of one function", results.len() as u64, 16)?;
                        }
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Imports and exports of a valid module.
fn check_interface(module: &[u8]) -> Result<(), CompileError> {
    let mut types: Vec<Option<FuncType>> = Vec::new();
    let mut functions: Vec<u32> = Vec::new();
    let mut exports: Vec<(String, ExternalKind, u32)> = Vec::new();
    for payload in Parser::new(0).parse_all(module) {
        match payload.map_err(|error| invalid(&error))? {
            Payload::TypeSection(section) => {
                for group in section {
                    for sub in group.map_err(|error| invalid(&error))?.into_types() {
                        types.push(match sub.composite_type.inner {
                            CompositeInnerType::Func(function) => Some(function),
                            _ => None,
                        });
                    }
                }
            }
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    let import = import.map_err(|error| invalid(&error))?;
                    let index = check_import(import.module, import.name, import.ty, &types)?;
                    functions.push(index);
                }
            }
            Payload::FunctionSection(section) => {
                for index in section {
                    functions.push(index.map_err(|error| invalid(&error))?);
                }
            }
            Payload::ExportSection(section) => {
                for export in section {
                    let export = export.map_err(|error| invalid(&error))?;
                    exports.push((export.name.to_owned(), export.kind, export.index));
                }
            }
            _ => {}
        }
    }
    let function = |name: &str| {
        let (_, _, index) = exports
            .iter()
            .find(|(export, kind, _)| export == name && *kind == ExternalKind::Func)?;
        let kind = functions.get(*index as usize)?;
        types.get(*kind as usize)?.as_ref()
    };
    let named = |name: &str| exports.iter().any(|(export, _, _)| export == name);
    let answers_i32 = |f: &FuncType| f.params().is_empty() && f.results() == [ValType::I32];
    let missing = |expected| CompileError::MissingExport { expected };
    if function(abi::MARKER).is_none() {
        return Err(missing(
            "the function \"minimq_filter_abi_1\", the mark of its ABI",
        ));
    }
    if !function(abi::FILTER).is_some_and(answers_i32) {
        return Err(missing("\"filter\" as a function () -> i32"));
    }
    if named(abi::INIT) && !function(abi::INIT).is_some_and(answers_i32) {
        return Err(missing("\"init\", if at all, as a function () -> i32"));
    }
    let is_memory = |(name, kind, _): &(String, ExternalKind, u32)| {
        name == abi::MEMORY && *kind == ExternalKind::Memory
    };
    if !exports.iter().any(is_memory) {
        return Err(missing("its memory as \"memory\""));
    }
    Ok(())
}

/// The type index of an allowed import.
fn check_import(
    module: &str,
    name: &str,
    kind: TypeRef,
    types: &[Option<FuncType>],
) -> Result<u32, CompileError> {
    let (parameters, answer) = if (module, name) == abi::ABORT {
        (4, false)
    } else {
        let known = abi::FUNCTIONS
            .iter()
            .find(|(function, ..)| module == abi::HOST && *function == name);
        let &(_, parameters, answer) = known.ok_or_else(|| CompileError::ForbiddenImport {
            module: module.to_owned(),
            name: name.to_owned(),
        })?;
        (parameters, answer)
    };
    if let TypeRef::Func(index) = kind
        && let Some(Some(function)) = types.get(index as usize)
        && function.params().len() == parameters
        && function.params().iter().all(|p| *p == ValType::I32)
        && function.results() == if answer { &[ValType::I32][..] } else { &[] }
    {
        return Ok(index);
    }
    let list = vec!["i32"; parameters].join(", ");
    let expected = format!("({list}){}", if answer { " -> i32" } else { "" });
    Err(CompileError::ImportType {
        module: module.to_owned(),
        name: name.to_owned(),
        expected,
    })
}
