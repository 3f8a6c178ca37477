//! The whole cluster through its real programs: mixed traffic with an invariant checker, while roles restart, die, move
//! and go missing.

mod processes;
mod roles;
mod soak;
mod traffic;
