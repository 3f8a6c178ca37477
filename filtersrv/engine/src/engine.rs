//! The engine: compiled filters by the hash of their upload, and the limits they all share.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use wasmtime::{Config, InstancePre, Linker, Module};

use crate::budget::Budget;
use crate::host::{self, Host, LogLimit};
use crate::instance::{FilterContext, Instance, InstanceError};
use crate::module::{self, CompileError};
use crate::ticker::Ticker;

/// Limits of an engine. Sizes in bytes.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Largest module, in its binary form. As many instructions may be compiled of one, the values counted that calls
    /// and branches pass on.
    pub max_module_size: usize,
    /// Most functions of a module.
    pub max_functions: usize,
    /// Longest code of one function.
    pub max_function_size: usize,
    /// Largest memory of an instance.
    pub max_memory: usize,
    /// Largest table of an instance.
    pub max_table_elements: usize,
    /// Most instances at one time.
    pub max_instances: usize,
    /// Largest sum of all instances' memories.
    pub max_total_memory: usize,
    /// Largest body after decompression.
    pub max_body_size: usize,
    /// Processor time a filter may take for one message.
    pub message_timeout: Duration,
    /// Processor time the start function and `init` may take together.
    pub start_timeout: Duration,
}

impl Default for EngineConfig {
    fn default() -> Self {
        const MIB: usize = 1024 * 1024;
        Self {
            max_module_size: 4 * MIB,
            max_functions: 10_000,
            max_function_size: 256 * 1024,
            max_memory: 16 * MIB,
            max_table_elements: 10_000,
            max_instances: 2_000,
            max_total_memory: 1024 * MIB,
            max_body_size: 4 * MIB,
            message_timeout: Duration::from_millis(10),
            start_timeout: Duration::from_millis(100),
        }
    }
}

/// SHA-256 of an upload; shown in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FilterHash(pub [u8; 32]);

impl FilterHash {
    /// The hash of an upload.
    pub fn of(upload: &[u8]) -> Self {
        Self(Sha256::digest(upload).into())
    }
}

impl fmt::Display for FilterHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for FilterHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Compiles and holds filters. Cheap to clone; all clones are one engine.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) config: EngineConfig,
    pub(crate) wasm: wasmtime::Engine,
    linker: Linker<Host>,
    pub(crate) ticker: Arc<Ticker>,
    pub(crate) budget: Arc<Budget>,
    filters: Mutex<HashMap<FilterHash, Weak<Filter>>>,
}

impl Engine {
    /// Starts the engine and its ticker thread.
    pub fn new(config: EngineConfig) -> Result<Self, CompileError> {
        let failed = |error: &dyn fmt::Display| CompileError::Compiler(error.to_string());
        let mut settings = Config::new();
        settings
            .epoch_interruption(true)
            .max_wasm_stack(256 * 1024)
            .wasm_multi_memory(false)
            .wasm_memory64(false)
            .wasm_relaxed_simd(false)
            .wasm_tail_call(false)
            .wasm_extended_const(false)
            .wasm_bulk_memory(true)
            .wasm_multi_value(true)
            .wasm_simd(true)
            .cranelift_nan_canonicalization(true)
            // An image of a module's data is a file descriptor for each module; instances are made too seldom for that.
            .memory_init_cow(false);
        let wasm = wasmtime::Engine::new(&settings).map_err(|e| failed(&e))?;
        let mut linker = Linker::new(&wasm);
        host::link(&mut linker).map_err(|e| failed(&e))?;
        let clock = wasm.clone();
        let ticker = Ticker::start(move || clock.increment_epoch()).map_err(|e| failed(&e))?;
        let budget = Budget::new(config.max_instances, config.max_total_memory);
        Ok(Self {
            shared: Arc::new(Shared {
                config,
                wasm,
                linker,
                ticker: Arc::new(ticker),
                budget,
                filters: Mutex::default(),
            }),
        })
    }

    /// The limits.
    pub fn config(&self) -> &EngineConfig {
        &self.shared.config
    }

    /// Instances alive now.
    pub fn instances(&self) -> usize {
        self.shared.budget.instances()
    }

    /// Bytes of all instances' memories now.
    pub fn instance_memory(&self) -> usize {
        self.shared.budget.memory()
    }

    /// The compiled filter of this hash, if one is alive.
    pub fn find(&self, hash: &FilterHash) -> Option<Arc<Filter>> {
        self.shared.filters.lock().get(hash).and_then(Weak::upgrade)
    }

    /// Checks, compiles and tries to start an upload: binary, text, or base64 of the binary. The same
    /// bytes are compiled once while a filter made of them lives. Takes milliseconds: not for a network thread.
    pub fn compile(&self, upload: &[u8]) -> Result<Arc<Filter>, CompileError> {
        let hash = FilterHash::of(upload);
        if let Some(filter) = self.find(&hash) {
            return Ok(filter);
        }
        let binary = module::binary(upload, &self.shared.config)?;
        module::validate(&binary, &self.shared.config)?;
        let compiler = |error: wasmtime::Error| CompileError::Compiler(format!("{error:#}"));
        let module = Module::from_binary(&self.shared.wasm, &binary).map_err(compiler)?;
        let prepared = self
            .shared
            .linker
            .instantiate_pre(&module)
            .map_err(compiler)?;
        let filter = Arc::new(Filter {
            hash,
            size: binary.len(),
            prepared,
            log_limit: Arc::new(LogLimit::default()),
            engine: self.shared.clone(),
        });
        filter
            .instantiate(FilterContext::default())
            .map_err(|error| CompileError::Start(error.to_string()))?;
        let mut filters = self.shared.filters.lock();
        filters.retain(|_, known| known.strong_count() > 0);
        filters.insert(hash, Arc::downgrade(&filter));
        Ok(filter)
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("config", &self.shared.config)
            .finish_non_exhaustive()
    }
}

/// A compiled filter. Instances of it run messages.
pub struct Filter {
    hash: FilterHash,
    size: usize,
    pub(crate) prepared: InstancePre<Host>,
    pub(crate) log_limit: Arc<LogLimit>,
    pub(crate) engine: Arc<Shared>,
}

impl Filter {
    /// SHA-256 of the upload.
    pub fn hash(&self) -> FilterHash {
        self.hash
    }

    /// Bytes of the module's binary form.
    pub fn size(&self) -> usize {
        self.size
    }

    /// A fresh sandbox: runs the start function and `init`.
    pub fn instantiate(
        self: &Arc<Self>,
        context: FilterContext,
    ) -> Result<Instance, InstanceError> {
        Instance::start(self, context)
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Filter({}, {} bytes)", self.hash, self.size)
    }
}
