//! `mqadmin` through its program against clusters of ours: text, JSON, exit status, and what it says when something fails.

mod access;
mod brokers;
mod diagnosis;
mod figures;
mod filters;
mod golden;
mod groups;
mod masks;
mod messages;
mod name_servers;
mod offline;
mod offsets;
mod overview;
mod servers;
mod shapes;
mod snapshots;
mod support;
mod terminal;
mod topics;
mod transfer;
mod usage;
