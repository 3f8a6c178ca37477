//! The real `mqnamesrv` over sockets: recorded conversations (`replay`), reported faults (`cases`), the program itself
//! (`program`), random input (`soak`).

mod cases;
mod harness;
mod program;
mod replay;
mod soak;
