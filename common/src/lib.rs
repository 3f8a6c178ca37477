//! What every role of mini-MQ needs and none of them owns.
//!
//! * [`mod@config`]: one declaration a key; files, environment and command line; changes at run time
//! * [`properties_file`]: Java's `.properties` dialect, comments and order kept
//! * [`atomic_file`]: state files that survive a power cut, with a `.bak` of the content before
//! * [`acl`]: who may do what, by `plain_acl.yml`
//! * [`clock`], [`shutdown`], [`logging`], [`limits`], [`memory`], [`names`], [`ready`], [`temporary`]
//!
//! Nothing here knows a request code's handler, a topic table or a socket.

#![forbid(unsafe_code)]

pub mod acl;
pub mod atomic_file;
pub mod clock;
pub mod config;
pub mod limits;
pub mod logging;
pub mod memory;
pub mod names;
pub mod properties_file;
pub mod ready;
pub mod shutdown;
pub mod temporary;
