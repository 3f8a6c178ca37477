//! The real `mqnamesrv` over sockets: recorded conversations (`replay`), reported faults (`cases`), what is
//! kept and who may change it (`changes`), the program itself
//! (`program`), random input (`soak`).

mod cases;
mod changes;
mod harness;
mod program;
mod replay;
mod soak;
